from ctypes import CDLL

uclib: CDLL
