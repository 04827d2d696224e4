"""The back ends, by name. Each is a value: a table of kernels (see `aot/lower/implementation.py`)."""

from aot.backends import cmsis_nn, generic, neon
from aot.lower.implementation import Backend

BACKENDS: dict[str, Backend] = {backend.name: backend for backend in (generic.BACKEND, cmsis_nn.BACKEND, neon.BACKEND)}
