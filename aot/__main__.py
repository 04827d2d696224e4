"""The console script `aot`, and `python -m aot`. Imports the rest late, so that an interrupt during imports is no traceback either."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line; does not return."""
    try:
        from aot import cli
    except KeyboardInterrupt:
        print("aot: error: interrupted", file=sys.stderr)
        sys.exit(1)
    cli.main()


if __name__ == "__main__":
    main()
