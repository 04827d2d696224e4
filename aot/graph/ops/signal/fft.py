"""FFTs of real signals on arrays: the plan of one (factors, twiddles) and its meaning, equal to kissfft's.

Enters: the length of the signal, its dtype, the direction. Leaves: `Plan`; spectra and signals, bit for bit (float: where no
multiplication and addition are contracted).
Invariant: stages are listed as kissfft nests them, outermost first; the innermost is done first.
Source: kissfft v130, kiss_fft.c (kf_factor, kf_work, kiss_fft_alloc) and tools/kiss_fftr.c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from aot.graph.ir import DType
from aot.graph.ops.signal.butterfly import (
    RADICES,
    butterfly,
    from_spectrum,
    from_spectrum_ends,
    halved,
    mirrored,
    moved_apart,
    spectrum_ends,
    to_spectrum,
    turned,
)
from aot.graph.ops.signal.fixed import Arrays, divide, largest

Complex = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Stage:
    """`groups` transforms of `radix` * `length` numbers each, from transforms of `length` numbers."""

    groups: int
    radix: int
    length: int


@dataclass(frozen=True)
class Plan:
    """The complex transform of n numbers, and the turns between it and the spectrum of 2 * n real ones."""

    n: int
    dtype: DType
    inverse: bool

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Fours first, then a two, then threes and fives: kissfft's order."""
        groups, rest = 1, self.n
        found: list[Stage] = []
        for radix in (4, 2, 3, 5):
            while rest % radix == 0:
                rest //= radix
                found.append(Stage(groups, radix, rest))
                groups *= radix
        return tuple(found)

    @cached_property
    def order(self) -> np.ndarray:
        """Which input number stands at each place before the first stage."""
        order = np.zeros(1, np.int64)
        for stage in self.stages:
            order = (order[:, None] + np.arange(stage.radix) * stage.groups).reshape(-1)
        return order

    @cached_property
    def twiddles(self) -> np.ndarray:
        """(n, 2): e^(-2 pi i k / n), conjugate for the inverse."""
        return self._circle([-2 * math.pi * k / self.n for k in range(self.n)])

    def roots(self, radix: int) -> tuple[tuple[float, float], ...]:
        """The first and second root of unity of a radix; empty where its butterfly needs none."""
        if radix not in (3, 5):
            return ()
        real, imaginary = (self.twiddles[[self.n // radix, 2 * self.n // radix], part].tolist() for part in (0, 1))
        return tuple(zip(real, imaginary, strict=True))

    def turns(self, stage: Stage) -> np.ndarray:
        """(radix - 1, length, 2, 2): what number u of transform q + 1 of a group is multiplied by, as a matrix."""
        places = np.arange(1, stage.radix)[:, None] * np.arange(stage.length) * stage.groups
        return _matrices(self.twiddles[places])

    @cached_property
    def real_turns(self) -> np.ndarray:
        """(n // 2, 2, 2): the same for bins 1 to n // 2 of the real transform."""
        return _matrices(self._circle([-math.pi * ((k + 1) / self.n + 0.5) for k in range(self.n // 2)]))

    def _circle(self, phases: list[float]) -> np.ndarray:
        signed = [-phase for phase in phases] if self.inverse else phases
        if self.dtype is DType.FLOAT32:
            return np.array([(math.cos(phase), math.sin(phase)) for phase in signed], np.float32).reshape(-1, 2)
        one = largest(self.dtype)
        parts = [(math.floor(0.5 + one * math.cos(phase)), math.floor(0.5 + one * math.sin(phase))) for phase in signed]
        return np.array(parts, self.dtype.np).reshape(-1, 2)


def _matrices(numbers: np.ndarray) -> np.ndarray:
    """Complex numbers as the matrices that multiply by them."""
    real, imaginary = numbers[..., 0], numbers[..., 1]
    return np.stack([np.stack([real, -imaginary], -1), np.stack([imaginary, real], -1)], -2)


def is_supported(n: int) -> bool:
    """Whether n has no prime factor but 2, 3 and 5, and is not 1."""
    for radix in RADICES:
        while n > 1 and n % radix == 0:
            n //= radix
            if n == 1:
                return True
    return False


@lru_cache(maxsize=16)
def plan(n: int, dtype: DType, inverse: bool) -> Plan:
    return Plan(n, dtype, inverse)


def _pair(matrix: np.ndarray, row: int) -> Complex:
    return matrix[..., row, 0], matrix[..., row, 1]


def transform(made: Plan, real: np.ndarray, imaginary: np.ndarray) -> Complex:
    """The complex transform of rows of n numbers. Integers are divided by n on the way, also in the inverse."""
    algebra, shape = Arrays(made.dtype), real.shape
    parts = (real[..., made.order], imaginary[..., made.order])
    for stage in reversed(made.stages):
        grouped = [part.reshape(*shape[:-1], stage.groups, stage.radix, stage.length) for part in parts]
        divided = [divide(algebra, part, stage.radix) for part in grouped]
        turns = made.turns(stage)
        points = [(divided[0][..., 0, :], divided[1][..., 0, :])]
        for number in range(1, stage.radix):
            turn = _pair(turns[number - 1], 0), _pair(turns[number - 1], 1)
            points.append(turned(algebra, (divided[0][..., number, :], divided[1][..., number, :]), turn))
        outs = butterfly(algebra, points, made.roots(stage.radix), made.inverse)
        parts = tuple(algebra.wrap(np.stack([out[part] for out in outs], -2)).reshape(shape) for part in (0, 1))
    return parts[0], parts[1]


def real_fft(made: Plan, signal: np.ndarray) -> np.ndarray:
    """Rows of 2 * n real numbers to rows of n + 1 complex ones, interleaved."""
    algebra, n = Arrays(made.dtype), made.n
    wide = _wide(signal, made.dtype)
    real, imaginary = transform(made, wide[..., 0::2], wide[..., 1::2])
    out = np.zeros((*signal.shape[:-1], n + 1, 2), wide.dtype)
    out[..., 0, 0], out[..., n, 0] = spectrum_ends(algebra, (real[..., 0], imaginary[..., 0]))
    low, high = np.arange(1, n // 2 + 1), n - np.arange(1, n // 2 + 1)
    ends = (real[..., low], imaginary[..., low]), (real[..., high], imaginary[..., high])
    for places, pair in zip((low, high), to_spectrum(algebra, *_apart(made, algebra, *ends)), strict=True):
        out[..., places, 0], out[..., places, 1] = pair
    return out.reshape(*signal.shape[:-1], 2 * n + 2).astype(made.dtype.np)


def inverse_real_fft(made: Plan, spectrum: np.ndarray) -> np.ndarray:
    """Rows of n + 1 complex numbers, interleaved, to rows of 2 * n real ones. Float results are divided by 2 * n."""
    algebra, n = Arrays(made.dtype), made.n
    bins = _wide(spectrum, made.dtype).reshape(*spectrum.shape[:-1], n + 1, 2)
    pairs = np.zeros((*spectrum.shape[:-1], n, 2), bins.dtype)
    pairs[..., 0, 0], pairs[..., 0, 1] = from_spectrum_ends(algebra, bins[..., 0, 0], bins[..., n, 0])
    low, high = np.arange(1, n // 2 + 1), n - np.arange(1, n // 2 + 1)
    ends = (bins[..., low, 0], bins[..., low, 1]), (bins[..., high, 0], bins[..., high, 1])
    for places, pair in zip((low, high), from_spectrum(algebra, *_apart(made, algebra, *ends)), strict=True):
        pairs[..., places, 0], pairs[..., places, 1] = map(algebra.wrap, pair)
    out = np.stack(transform(made, pairs[..., 0], pairs[..., 1]), -1).reshape(*spectrum.shape[:-1], 2 * n)
    return (out / np.float32(2 * n) if made.dtype is DType.FLOAT32 else out).astype(made.dtype.np)


def _apart(made: Plan, algebra: Arrays, low: Complex, high: Complex) -> tuple[Complex, Complex, Complex]:
    """What the steps between spectrum and complex transform are made of."""
    near, far = halved(algebra, low), mirrored(algebra, high)
    return near, far, moved_apart(algebra, near, far, (_pair(made.real_turns, 0), _pair(made.real_turns, 1)))


def _wide(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Numbers as the algebra computes with them."""
    return x.astype(np.float32 if dtype is DType.FLOAT32 else np.int32)
