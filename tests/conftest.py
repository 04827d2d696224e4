"""What holds for every test: no time limits, and numpy's BLAS keeps to one thread in each of the processes that run tests.

Their matrices are small; idle threads of several processes would spin on the same cores, and take most of the suite's time.
"""

import os
import zlib
from collections import Counter

import pytest
from hypothesis import settings

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
settings.register_profile("aot", deadline=None)
settings.load_profile("aot")


HALVED = (
    "tests/backends/",
    "tests/graph/",
    "tests/llvm/",
    "tests/models/test_real_models.py",
    "tests/models/test_processes.py",
    "tests/run/test_process.py",
    "tests/traps/",
)
"""Where the same test runs for many cores, shapes or seeds: every second case by default, all with AOT_SWEEP=1 (`make sweep`)."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Which half of a test's cases depends on its name, so that different tests run for different cores; one that is asked for by its
    own name runs in any case."""
    if os.environ.get("AOT_SWEEP") or any("::" in argument for argument in config.args):
        return
    counts = Counter(item.nodeid.split("[")[0] for item in items)
    seen: dict[str, int] = {}
    kept: list[pytest.Item] = []
    for item in items:
        function = item.nodeid.split("[")[0]
        number = seen.setdefault(function, zlib.crc32(function.encode()) % 2)
        seen[function] = number + 1
        if "[" not in item.nodeid or counts[function] < 3 or not item.nodeid.startswith(HALVED) or number % 2 == 0:
            kept.append(item)
    items[:] = kept


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says that cases were left out."""
    if not os.environ.get("AOT_SWEEP"):
        terminalreporter.write_line(f"left for `make sweep`: every second case of tests with many cases in {', '.join(HALVED)}")
