"""The version, in one place for the package, the reports and the command line."""

from importlib.metadata import PackageNotFoundError, version


def _version() -> str:
    try:
        return version("aot-bundle")
    except PackageNotFoundError:  # a source tree that is not installed
        return "0.0.0"


VERSION = _version()
