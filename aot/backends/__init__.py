"""The back ends, by name. Each is a value: a table of kernels (see `aot/lower/implementation.py`)."""

from aot.backends import cmsis_nn, generic, hifi_ref, neon
from aot.backends.cmsis_nn.library import CMSIS_NN
from aot.backends.library import Library
from aot.lower.implementation import Backend

BACKENDS: dict[str, Backend] = {
    backend.name: backend for backend in (generic.BACKEND, cmsis_nn.BACKEND, neon.BACKEND, hifi_ref.BACKEND)
}
LIBRARIES: dict[str, Library] = {cmsis_nn.BACKEND.name: CMSIS_NN, hifi_ref.BACKEND.name: hifi_ref.HIFI_NN}
"""The libraries that layers may be computed by, by back end."""
