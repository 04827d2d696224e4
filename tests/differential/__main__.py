"""Run one case again: `python -m tests.differential 'Net(...)' [target]`. Without a text: it is read from standard input."""

from __future__ import annotations

import sys

from tests.differential.engines import quiet
from tests.differential.net import parse
from tests.differential.outcome import Referee


def main() -> int:
    text = sys.argv[1] if len(sys.argv) > 1 else sys.stdin.read()
    quiet()
    referee = Referee()
    try:
        outcome = referee.judge(parse(text), *sys.argv[2:3])
    finally:
        referee.close()
    print(f"{outcome.kind} ({outcome.oracle}): {outcome.what}")
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
