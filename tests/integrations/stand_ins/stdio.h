/* Stands for the C library's header of this name. */
#ifndef STDIO_H
#define STDIO_H

int printf(const char *format, ...);

#endif
