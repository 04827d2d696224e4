"""The firmware's functions as Python functions, for bundles that run in process.

Enters: Python functions by the C name that the object calls. Leaves: C functions at addresses, which read the structs of
`aot/templates/aot_custom.h`. Invariant: what a Python function raises ends the run, and is raised again by the runner.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.llvm.calls import TYPE_CODES

_DTYPES = {code: dtype for dtype, code in TYPE_CODES.items()}


@dataclass(frozen=True)
class CustomTensor:
    """A tensor of a call. `array` is the run's own memory: read-only for an input, to be filled for an output."""

    array: np.ndarray
    scale: float
    zero_point: int


@dataclass(frozen=True)
class CustomCall:
    """What the function is told: tensors in the model's order (None: an absent input), and the options as in the model file."""

    inputs: tuple[CustomTensor | None, ...]
    outputs: tuple[CustomTensor, ...]
    options: bytes


Function = Callable[[CustomCall], int | None]
"""Fills the outputs; returns 0 or None, or another number if it fails."""


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dims", ctypes.POINTER(ctypes.c_int32)),
        ("nbytes", ctypes.c_uint32),
        ("rank", ctypes.c_int32),
        ("type", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("zero_point", ctypes.c_int32),
    )


class _Call(ctypes.Structure):
    _fields_ = (
        ("inputs", ctypes.POINTER(_Tensor)),
        ("outputs", ctypes.POINTER(_Tensor)),
        ("options", ctypes.c_void_p),
        ("input_count", ctypes.c_uint32),
        ("output_count", ctypes.c_uint32),
        ("options_nbytes", ctypes.c_uint32),
    )


class Callbacks:
    """C functions that call these Python functions; they exist as long as this object. `raised`: what the last one raised."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self.raised: BaseException | None = None
        made = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Call))
        self.kept: dict[str, Any] = {name: made(self._wrapped(function)) for name, function in functions.items()}

    @property
    def addresses(self) -> dict[str, int]:
        return {name: ctypes.cast(function, ctypes.c_void_p).value or 0 for name, function in self.kept.items()}

    def _wrapped(self, function: Function) -> Callable[[Any], int]:
        def called(pointer: Any) -> int:
            try:
                return function(_read(pointer.contents)) or 0
            except BaseException as error:  # it can't cross the C frames: the runner raises it
                self.raised = error
                return 1

        return called


def _read(call: Any) -> CustomCall:
    inputs = tuple(_tensor(call.inputs[number], False) for number in range(call.input_count))
    outputs = tuple(_tensor(call.outputs[number], True) for number in range(call.output_count))
    options = ctypes.string_at(call.options, call.options_nbytes) if call.options_nbytes else b""
    return CustomCall(inputs, tuple(each for each in outputs if each is not None), options)


def _tensor(tensor: Any, writable: bool) -> CustomTensor | None:
    if not tensor.data:
        return None
    dtype, shape = _DTYPES[tensor.type].np, tuple(tensor.dims[number] for number in range(tensor.rank))
    memory = (ctypes.c_uint8 * tensor.nbytes).from_address(tensor.data)
    array = np.frombuffer(memory, dtype).reshape(shape) if tensor.nbytes else np.empty(shape, dtype)
    array.flags.writeable = writable
    return CustomTensor(array, tensor.scale, tensor.zero_point)
