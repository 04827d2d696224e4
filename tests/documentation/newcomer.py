"""`make newcomer`: types what docs/start.md says first, in a fresh copy of what is committed, and says how long each command took.

Enters: the first script of docs/start.md. Leaves: a line for each command, the total, exit code 0 if all ran. Nothing here compares
times: machines differ. A command that changes the system is left out where what it installs is there already, and said to be.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.documentation.pages import fences
from tests.shared import ROOT

PAGE = "docs/start.md"
MOST_COMMANDS = 5


def commands() -> list[str]:
    """What a newcomer types, in order."""
    return next(content for _, mark, content in fences(PAGE) if mark == "sh").strip().splitlines()


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="newcomer-") as folder:
        clone = Path(folder) / "aot"
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        begin = time.monotonic()
        for number, command in enumerate(commands(), 1):
            if command.startswith("sudo ") and shutil.which("qemu-system-arm") and shutil.which("make"):
                print(f"{number}. left out, what it installs is here: {command}", flush=True)
                continue
            started = time.monotonic()
            done = subprocess.run(
                command, shell=True, cwd=clone, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            print(f"{number}. {time.monotonic() - started:6.1f} s  {command}", flush=True)
            if done.returncode:
                print(done.stdout, file=sys.stderr)
                return 1
        print(f"   {time.monotonic() - begin:6.1f} s  in all; the last lines are:\n" + "\n".join(done.stdout.splitlines()[-4:]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
