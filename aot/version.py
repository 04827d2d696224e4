"""The version, in one place for the package, the reports and the command line."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("aot-bundle")
except PackageNotFoundError:  # a source tree that is not installed
    VERSION = "0.0.0"
