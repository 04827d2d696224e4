"""Fuzzing of the reader by atheris, which follows what each file makes the reader execute.

    python -m tests.hardening.reader_target FOLDER [OPTIONS OF LIBFUZZER]

Enters: a folder of model files, to which files that reach new code are added. A file that is neither read nor refused in one line ends the run with
a traceback, and is left in the working directory. Half of the mutations are aimed at the tables of a file (`tests/graph/hostile.py`), others are
libFuzzer's own.
"""

from __future__ import annotations

import importlib.util
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.shared import ROOT

MISSING = "atheris is not installed (pip install atheris; it has wheels for Linux on x86-64)"
_LONGEST = 1 << 16


def fuzz(option: str, amount: int) -> tuple[int, str]:
    """(exit code, what came of it) of atheris with one of libFuzzer's limits, from the models of `tests/graph/hostile.py` on.

    Without atheris the code is 0, and the text says so.
    """
    if importlib.util.find_spec("atheris") is None:
        return 0, f"no fuzzing by coverage: {MISSING}"
    from tests.graph.hostile import bases

    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus")
        corpus.mkdir()
        for number, model in enumerate(bases()):
            if len(model) <= _LONGEST:
                (corpus / f"{number:03}").write_bytes(model)
        limits = [f"{option}={amount}", f"-max_len={_LONGEST}", "-timeout=10", "-rss_limit_mb=1536", "-seed=1"]
        command = [sys.executable, "-m", "tests.hardening.reader_target", str(corpus), *limits, f"-artifact_prefix={folder}/"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
        held = [path.read_bytes().hex() for path in Path(folder).iterdir() if path.is_file()]
    runs = re.findall(r"^(?:Done |#)([0-9]+)", done.stderr, re.MULTILINE)
    covered = re.findall(r"cov: ([0-9]+)", done.stderr)
    text = f"atheris: {runs[-1] if runs else 0} files, {covered[-1] if covered else 0} branches reached"
    if done.returncode == 0:
        return 0, text
    return 1, "\n".join([text, done.stdout[-2000:], done.stderr[-2000:], *held])


def main() -> None:
    import atheris

    with atheris.instrument_imports(include=["aot.graph"], enable_loader_override=False):
        import aot.graph.ops
        import aot.graph.tflite  # noqa: F401
    from tests.graph import hostile

    def mutate(data: bytes, longest: int, seed: int) -> bytes:
        rng = random.Random(seed)
        return hostile.aimed(data, rng)[:longest] if rng.random() < 0.5 else atheris.Mutate(data, longest)

    atheris.Setup(sys.argv, lambda data: hostile.outcome(data) and None, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
