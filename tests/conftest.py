"""What holds for every test: no time limits, and numpy's BLAS keeps to one thread in each of the processes that run tests.

Their matrices are small; idle threads of several processes would spin on the same cores, and take most of the suite's time.
"""

import os

from hypothesis import settings

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
settings.register_profile("aot", deadline=None)
settings.load_profile("aot")
