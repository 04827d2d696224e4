"""Machine code of the few Helium and Armv8.1-M instructions that the kernels for Cortex-M55 and M85 order by hand.

Enters: calls, one for each instruction, registers by number, q registers apart. Leaves: bytes.
Invariant: as for `Code`: an operand without room raises; the encodings are those of the Armv8-M Architecture Reference Manual, and the
tests compare them with an assembler (but for VQSHRN, which GNU as 2.40 confuses with VQRSHRN).
"""

from __future__ import annotations

from aot.backends.cmsis_nn.swar.m3.thumb2 import LR, SP, Code
from aot.errors import InternalError

_LOADS = {"u8": (0x1E00, 1), "s16": (0x0E80, 1), "s32": (0x0F00, 1), "w": (0x1F00, 4)}
_STORES = {"8": (0x1E00, 1), "16": (0x0E80, 1), "32": (0x0F00, 1), "h32": (0x0F00, 2), "w": (0x1F00, 4)}
_BITS = {8: 0, 16: 1, 32: 2}
LT, GE, GT = 11, 10, 12
REACH = 127
"""The largest offset of VLDRB and VSTRB."""


class Helium(Code):
    """As `Code`, with vectors."""

    # Memory. kind: u8: sixteen bytes; s16, s32: eight or four bytes, widened; w: four words. Stores: bytes of lanes of so many bits; h32:
    # halfwords of lanes of 32 bits.

    def vload(self, to: int, base: int, offset: int = 0, kind: str = "u8") -> None:
        bits, unit = _LOADS[kind]
        self._access(0xED10, to, base, offset, bits, unit)

    def vload_post(self, to: int, base: int, step: int, kind: str = "u8") -> None:
        """VLDR at the base, which then goes forward."""
        bits, unit = _LOADS[kind]
        self._access(0xEC30, to, base, step, bits, unit)

    def vstore(self, value: int, base: int, offset: int = 0, kind: str = "8") -> None:
        bits, unit = _STORES[kind]
        self._access(0xED00, value, base, offset, bits, unit)

    def vstore_post(self, value: int, base: int, step: int, kind: str = "8") -> None:
        bits, unit = _STORES[kind]
        self._access(0xEC20, value, base, step, bits, unit)

    def _access(self, first: int, q: int, base: int, offset: int, bits: int, unit: int) -> None:
        if offset % unit or abs(offset) // unit > 127:
            raise InternalError(f"an offset of {offset}")
        up = 0x80 if offset >= 0 else 0
        up |= 8 if unit == 2 else 0
        self._wide(first | up | base, q << 13 | bits | abs(offset) // unit)

    def vscatter(self, value: int, base: int, offsets: int, kind: str) -> None:
        """Lanes of 32 bits, as bytes ("32") or halfwords ("h32"), each at the base plus its own offset."""
        self._wide(0xEC80 | base, value << 13 | 0xF00 | {"32": 0, "h32": 0x10}[kind] | offsets << 1)

    def vpush(self) -> None:
        """VPUSH of q4 to q7, which belong to the caller."""
        self._wide(0xED2D, 0x8B10)

    def vpop(self) -> None:
        self._wide(0xECBD, 0x8B10)

    # Between registers.

    def vmov_even(self, to: int, a: int, b: int) -> None:
        """Lanes 0 and 2 of 32 bits."""
        self._wide(0xEC10 | b, to << 13 | 0xF00 | a)

    def vmov_odd(self, to: int, a: int, b: int) -> None:
        """Lanes 1 and 3."""
        self._wide(0xEC10 | b, to << 13 | 0xF10 | a)

    def vdup(self, to: int, value: int, bits: int) -> None:
        first, second = {8: (0xEEE0, 0xB10), 16: (0xEEA0, 0xB30), 32: (0xEEA0, 0xB10)}[bits]
        self._wide(first | to << 1, value << 12 | second)

    # Arithmetic.

    def vmladav(self, acc: int, a: int, b: int, accumulates: bool, bits: int = 8) -> None:
        """acc (an even register) = or += the sum of sixteen products of int8, or eight of int16."""
        if acc % 2:
            raise InternalError("VMLADAV needs an even register")
        self._wide(0xEEF0 | a << 1, acc << 12 | {8: 0xF00, 16: 0xE00}[bits] | accumulates << 5 | b << 1)

    def vmlaldav(self, low: int, a: int, b: int, accumulates: bool) -> None:
        """The same of int16 in 64 bits: `low` (an even register) and the one behind it."""
        if low % 2:
            raise InternalError("VMLALDAV needs an even register")
        self._wide(0xEE80 | low // 2 << 4 | a << 1, low << 12 | 0xE00 | accumulates << 5 | b << 1)

    def vadd(self, to: int, a: int, b: int, bits: int = 32) -> None:
        self._three(0xEF00 | _BITS[bits] << 4, 0x840, to, a, b)

    def vmulh(self, to: int, a: int, b: int) -> None:
        """The upper half of signed products of 32 bits."""
        self._three(0xEE21, 0xE01, to, a, b)

    def vqrdmulh(self, to: int, a: int, b: int) -> None:
        self._three(0xFF20, 0xB40, to, a, b)

    def vqadd(self, to: int, a: int, b: int) -> None:
        self._three(0xEF20, 0x050, to, a, b)

    def vand(self, to: int, a: int, b: int) -> None:
        self._three(0xEF00, 0x150, to, a, b)

    def vmax(self, to: int, a: int, b: int, bits: int) -> None:
        self._three(0xEF00 | _BITS[bits] << 4, 0x640, to, a, b)

    def vmin(self, to: int, a: int, b: int, bits: int) -> None:
        self._three(0xEF00 | _BITS[bits] << 4, 0x650, to, a, b)

    def vshl(self, to: int, a: int, by: int) -> None:
        """Each lane of 32 bits shifted left by its own count; right by a negative one."""
        self._three(0xEF20, 0x440, to, by, a)

    def vrshl(self, to: int, a: int, by: int) -> None:
        """As `vshl`; right shifts round half up."""
        self._three(0xEF20, 0x540, to, by, a)

    def vsign(self, to: int, a: int) -> None:
        """VSHR.S32 #31."""
        self._wide(0xEFA1, to << 13 | 0x050 | a << 1)

    def vmull(self, to: int, a: int, b: int, top: bool, bits: int) -> None:
        """Products of the even (top: odd) lanes of so many bits, signed."""
        self._three(0xEE01 | _BITS[bits] << 4, 0xE00 | top << 12, to, a, b)

    def vmovl16(self, to: int, a: int, top: bool) -> None:
        """The even (top: odd) halfwords, widened."""
        self._wide(0xEEB0, to << 13 | 0xF40 | top << 12 | a << 1)

    def vqshrn32(self, to: int, a: int, shift: int, top: bool = False, rounds: bool = False) -> None:
        """Lanes of 32 bits shifted right by 1 to 16 and saturated to 16 bits, into the even (top: odd) halfwords. rounds: half up."""
        if not 1 <= shift <= 16:
            raise InternalError(f"VQSHRN by {shift}")
        self._wide(0xEE90 | (16 - shift), to << 13 | 0xF40 | top << 12 | a << 1 | rounds)

    def vqmovn(self, to: int, a: int, bits: int, top: bool = False) -> None:
        """Lanes of `bits` saturated to half as many."""
        self._wide({32: 0xEE37, 16: 0xEE33}[bits], to << 13 | 0xE01 | top << 12 | a << 1)

    def _three(self, first: int, second: int, to: int, a: int, b: int) -> None:
        self._wide(first | a << 1, to << 13 | second | b << 1)

    # Predication and loops.

    def vctp(self, bits: int, count: int) -> None:
        """The first `count` (a register) lanes."""
        self._wide(0xF000 | _BITS[bits] << 4 | count, 0xE801)

    def vpst(self) -> None:
        """The next instruction only for the lanes of VCTP."""
        self._wide(0xFE71, 0x0F4D)

    def while_bytes(self, count: int) -> int:
        """WLSTP.8: a loop over `count` bytes, sixteen a turn; closed by `end_bytes` with what this returns."""
        self._wide(0xF000 | count, 0)
        return self.nbytes

    def end_bytes(self, start: int) -> None:
        """LETP."""
        self._wide(0xF01F, _backwards(self.nbytes + 4 - start))
        self.halfwords[start // 2 - 1] = _backwards(self.nbytes - start)

    def begin_loop(self, count: int) -> int:
        """DLS: a loop of `count` (a register) turns; closed by `end_loop` with what this returns."""
        self._wide(0xF040 | count, 0xE001)
        return self.nbytes

    def end_loop(self, start: int) -> None:
        """LE."""
        self._wide(0xF00F, _backwards(self.nbytes + 4 - start))

    # Scalars.

    def umlal(self, low: int, high: int, a: int, b: int) -> None:
        """64 bits += a * b, unsigned."""
        self._wide(0xFBE0 | a, low << 12 | high << 8 | b)

    def asrl(self, low: int, by: int) -> None:
        """64 bits, in an even register and the one behind it, shifted right by a register."""
        self._wide(0xEA50 | low, by << 12 | low // 2 << 9 | 0x12D)

    def ssat16(self, to: int, value: int) -> None:
        """SSAT to 16 bits."""
        self._wide(0xF300 | value, to << 8 | 0x0F)

    def strh_post(self, value: int, base: int, step: int) -> None:
        self._wide(0xF820 | base, value << 12 | 0xB00 | step)

    def add_registers(self, to: int, a: int, b: int) -> None:
        self._wide(0xEB00 | a, to << 8 | b)

    def sub_number(self, to: int, a: int, number: int) -> None:
        if not 0 <= number < 1 << 12:
            raise InternalError(f"{number} does not fit 12 bits")
        self._wide(0xF2A0 | (number >> 11) << 10 | a, (number >> 8 & 7) << 12 | to << 8 | number & 0xFF)

    def subs_number(self, to: int, number: int) -> None:
        """to -= number (a byte), with flags."""
        self._wide(0xF1B0 | to, to << 8 | number)

    def compare(self, a: int, b: int) -> None:
        """CMP of any registers."""
        self._wide(0xEBB0 | a, 0x0F00 | b)

    def compare_number(self, a: int, number: int) -> None:
        """CMP with a byte."""
        self._wide(0xF1B0 | a, 0x0F00 | number)

    def constant(self, to: int, value: int) -> None:
        """Any int32, by one or two instructions."""
        value &= 0xFFFFFFFF
        self.movw(to, value & 0xFFFF)
        if value >> 16:
            self._wide(0xF2C0 | (value >> 27 & 1) << 10 | value >> 28, (value >> 24 & 7) << 12 | to << 8 | value >> 16 & 0xFF)

    def add_any(self, to: int, a: int, number: int, spare: int) -> None:
        """to = a + number, through `spare` where it is large."""
        if number == 0:
            if to != a:
                self.mov(to, a)
        elif 0 < number < 1 << 12:
            self.add_number(to, a, number)
        elif -1 << 12 < number < 0:
            self.sub_number(to, a, -number)
        else:
            self.constant(spare, number)
            self.add_registers(to, a, spare)

    def skip(self, condition: int) -> int:
        """A branch forwards, to where `land` is called with what this returns."""
        at = self.nbytes
        self.branch(condition, at + 4)
        return at

    def land(self, at: int) -> None:
        there = self.halfwords[at // 2 : at // 2 + 2]
        condition = there[0] >> 6 & 15
        rest, self.halfwords = self.halfwords, self.halfwords[: at // 2]
        self.branch(condition, 2 * len(rest))
        self.halfwords += rest[at // 2 + 2 :]


SAVED = (*range(4, 12), LR)


def _backwards(distance: int) -> int:
    """The second halfword of WLSTP and LETP: a distance in bytes, a multiple of 2."""
    if distance % 2 or not 0 <= distance < 1 << 12:
        raise InternalError(f"a loop of {distance} bytes")
    return 0xC001 | (distance >> 1 & 1) << 11 | distance >> 2 << 1


__all__ = ["GE", "GT", "LR", "LT", "REACH", "SAVED", "SP", "Helium"]
