"""`python -m aot`."""

from aot.cli import main

main()
