"""What a core lacks: the routines that LLVM's code generation calls, put into the object as local functions.

Enters: a linked module. Leaves: its object code, complete. Only the routines that the object asks for are added (division, 64-bit
arithmetic, floats in software, blocks of memory), under the names that LLVM uses: libgcc's, the Arm run-time ABI's, C's.
Invariant: the finished object has no undefined symbol but those that are the firmware's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from llvmlite import ir

from aot.errors import CompileError
from aot.llvm import elf
from aot.llvm import float_routines as real
from aot.llvm import integer_routines as whole
from aot.llvm.arithmetic import has_long_multiply
from aot.llvm.emission import local_attributes
from aot.llvm.float_routines import DOUBLE, FLOATS, HALF, SINGLE, Format, give
from aot.llvm.llvm import Compiler, Emission
from aot.llvm.types import I16, I32, I64, POINTER, Builder
from aot.llvm.words import Word, join
from aot.target import Target

Body = Callable[..., None]
Divide = Callable[..., tuple[Word, Word]]

HEXAGON = (
    {f"{sign}{what}{width}3": f"__{sign}{what}{width}3" for sign in ("", "u") for what in ("div", "mod") for width in ("si", "di")}
    | {f"{what}df3": f"__{what}df3" for what in ("add", "sub", "mul", "div")}
    | {"divsf3": "__divsf3", "sqrtf": "sqrtf", "memcpy_likely_aligned_min32bytes_mult8bytes": "memcpy"}
)
"""Hexagon's names of routines, without what they begin with."""


@dataclass(frozen=True)
class Routine:
    """Types, and a body that takes the builder, the target and the arguments: words, for integers and floats alike."""

    returns: ir.Type
    takes: tuple[ir.Type, ...]
    body: Body


@dataclass(frozen=True)
class Finished:
    """A complete object, and for each function the ones that it calls."""

    emission: Emission
    calls: Mapping[str, Collection[str]]


def complete(
    compiler: Compiler, module: bytes, exported: Collection[str], ordered: bool, name: str, firmware: Collection[str] = ()
) -> Finished:
    """Emit a module with the routines that it needs. CompileError if the target needs one that is not known here.

    firmware: functions that stay undefined.
    """
    first = compiler.emit(module, ordered)
    missing = [symbol for symbol in elf.undefined(first.object) if symbol not in firmware]
    if not missing:
        return Finished(first, compiler.calls(module))
    routines, made = _closed(compiler, missing, name)
    linked = compiler.link([module, routines], exported)
    calls: dict[str, set[str]] = {}
    for edges in (compiler.calls(linked), elf.callers(first.object), elf.callers(made)):
        for caller, callees in edges.items():
            calls.setdefault(caller, set()).update(callees)
    return Finished(compiler.emit(linked, ordered), calls)


def _closed(compiler: Compiler, missing: Sequence[str], name: str) -> tuple[bytes, bytes]:
    """A module of these routines and of those that they need in turn, and its object code."""
    wanted = set(missing)
    while True:
        module = ir.Module(f"{name}_routines")
        for each in sorted(wanted):
            define(module, each, each, compiler.target)
            module.globals[each].section = f".text.aot.{name}"
        bitcode = compiler.parse(str(module))
        code = compiler.emit(bitcode, False).object
        further = set(elf.undefined(code)) - wanted
        if not further:
            return bitcode, code
        wanted |= further


def define(module: ir.Module, symbol: str, name: str, target: Target) -> ir.Function:
    """Define the routine `name` under the name `symbol`. CompileError if there is no such routine."""
    routine = table(target.pointer_bits).get(name)
    if routine is None:
        what = f"code for '{target.triple}' needs the routine {name}, which is not known here"
        raise CompileError(what, hint="choose another target")
    function = _declared(module, symbol, name, routine)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    arguments = [_word(builder, argument) for argument in function.args]
    routine.body(target, *arguments)
    return function


def _declared(module: ir.Module, symbol: str, name: str, routine: Routine) -> ir.Function:
    function = module.globals.get(symbol)
    if function is None:
        function = ir.Function(module, ir.FunctionType(routine.returns, routine.takes), symbol)
        local_attributes(function)
        if name.startswith("__aeabi_"):
            function.calling_convention = "arm_aapcscc"  # floats in integer registers, whatever the firmware's ABI
    return function


def _word(builder: Builder, argument: ir.Argument) -> Word:
    for form, type in FLOATS.items():
        if argument.type == type:
            return Word(builder, builder.bitcast(argument, ir.IntType(form.width)))
    return Word(builder, argument)


@functools.cache
def table(pointer_bits: int) -> Mapping[str, Routine]:
    """Every routine by name."""
    made = {**_integer(), **_arm_pairs(), **_blocks(ir.IntType(pointer_bits)), **_conversions()}
    for form, gnu, aeabi, suffix in ((SINGLE, "sf", "f", "f"), (DOUBLE, "df", "d", "")):
        made |= (
            _arithmetic(form, gnu, aeabi) | _comparisons(form, gnu, aeabi) | _integers(form, gnu, aeabi) | _library(form, suffix)
        )
    return made | {f"__hexagon_{theirs}": made[name] for theirs, name in HEXAGON.items()}


def _returning(compute: Callable[..., Word]) -> Body:
    """A body out of a function of words."""

    def body(target: Target, *words: Word) -> None:
        give(compute(*words))

    return body


def _long(compute: Callable[..., Word]) -> Body:
    """A body out of a function of words and of whether the core multiplies 32x32 -> 64 bits."""

    def body(target: Target, *words: Word) -> None:
        give(compute(*words, has_long_multiply(target)))

    return body


def _part(divide: Divide, number: int) -> Body:
    """A body that gives the quotient (0) or the remainder (1)."""
    return _returning(lambda *words: divide(*words)[number])


def _joined(divide: Divide) -> Body:
    """A body that gives both in one word, the quotient in its low half."""
    return _returning(lambda *words: join(*reversed(divide(*words))))


def _named(names: Sequence[str], routine: Routine) -> dict[str, Routine]:
    return dict.fromkeys(names, routine)


def _integer() -> dict[str, Routine]:
    made = _named(["__mulsi3"], Routine(I32, (I32, I32), _returning(whole.multiply_small)))
    made |= _named(["__muldi3", "__aeabi_lmul"], Routine(I64, (I64, I64), _multiply_double))
    made |= _named(["__clzsi2"], Routine(I32, (I32,), _returning(whole.leading_zeros)))
    for names, shift in (
        (["__ashldi3", "__aeabi_llsl"], whole.shift_left),
        (["__lshrdi3", "__aeabi_llsr"], functools.partial(whole.shift_right, arithmetic=False)),
        (["__ashrdi3", "__aeabi_lasr"], functools.partial(whole.shift_right, arithmetic=True)),
    ):
        made |= _named(names, Routine(I64, (I64, I32), _returning(shift)))
    for type, width, arm in ((I32, "si", True), (I64, "di", False)):
        for sign, divide in (("", whole.divide_signed), ("u", whole.divide)):
            names = [f"__{sign}div{width}3"] + [f"__aeabi_{sign}idiv"] * arm
            made |= _named(names, Routine(type, (type, type), _part(divide, 0)))
            made |= _named([f"__{sign}mod{width}3"], Routine(type, (type, type), _part(divide, 1)))
    return made


def _multiply_double(target: Target, a: Word, b: Word) -> None:
    """From 32-bit words; by shifts and adds where the words of the core are 64 bits (it then can't multiply at all)."""
    long = has_long_multiply(target)
    give(whole.multiply_small(a, b) if target.pointer_bits == 64 and not long else whole.multiply_double(a, b, long))


def _arm_pairs() -> dict[str, Routine]:
    """Quotient and remainder at once: r0, r1; for 64 bits r0:r1, r2:r3."""
    made: dict[str, Routine] = {}
    for name, divide in (("idivmod", whole.divide_signed), ("uidivmod", whole.divide)):
        made[f"__aeabi_{name}"] = Routine(I64, (I32, I32), _joined(divide))
    for name, divide in (("ldivmod", whole.divide_signed), ("uldivmod", whole.divide)):
        made[f"__aeabi_{name}"] = Routine(ir.LiteralStructType([I64, I64]), (I64, I64), _pair(divide))
    return made


def _pair(divide: Callable[[Word, Word], tuple[Word, Word]]) -> Body:
    def body(target: Target, n: Word, d: Word) -> None:
        builder = n.builder
        both = ir.Constant(ir.LiteralStructType([I64, I64]), ir.Undefined)
        for position, word in enumerate(divide(n, d)):
            both = builder.insert_value(both, word.value, position)
        builder.ret(both)

    return body


def _arithmetic(f: Format, gnu: str, aeabi: str) -> dict[str, Routine]:
    type = FLOATS[f]
    two = (type, type)
    made = _named([f"__add{gnu}3", f"__aeabi_{aeabi}add"], Routine(type, two, _returning(functools.partial(real.add, f))))
    made |= _named([f"__mul{gnu}3", f"__aeabi_{aeabi}mul"], Routine(type, two, _long(functools.partial(real.multiply, f))))
    made |= _named([f"__div{gnu}3", f"__aeabi_{aeabi}div"], Routine(type, two, _returning(functools.partial(real.divide, f))))
    made[f"__sub{gnu}3"] = Routine(type, two, _subtract(f, f"__add{gnu}3", made))
    made[f"__aeabi_{aeabi}sub"] = Routine(type, two, _subtract(f, f"__aeabi_{aeabi}add", made))
    return made


def _subtract(f: Format, addition: str, routines: Mapping[str, Routine]) -> Body:
    """a + (-b), by a call."""
    routine = routines[addition]

    def body(target: Target, a: Word, b: Word) -> None:
        builder = a.builder
        function = _declared(builder.module, addition, addition, routine)
        operands = [builder.bitcast(word.value, FLOATS[f]) for word in (a, b ^ f.sign)]
        builder.ret(builder.call(function, operands, cconv=function.calling_convention))

    return body


def _comparisons(f: Format, gnu: str, aeabi: str) -> dict[str, Routine]:
    two = (FLOATS[f], FLOATS[f])

    def order(unordered: int) -> Routine:
        def body(a: Word, b: Word) -> Word:
            return real.ordering(f, a, b, unordered)

        return Routine(I32, two, _returning(body))

    def test(holds: Callable[[Word], Word], unordered: int) -> Routine:
        def body(a: Word, b: Word) -> Word:
            return holds(real.ordering(f, a, b, unordered)).to(32)

        return Routine(I32, two, _returning(body))

    def unordered(a: Word, b: Word) -> Word:
        return (real.is_nan(f, a) | real.is_nan(f, b)).to(32)

    made = {f"__{name}{gnu}2": order(-1 if name in ("gt", "ge") else 1) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
    made[f"__aeabi_{aeabi}cmpeq"] = test(lambda order: order.eq(0), 1)
    made[f"__aeabi_{aeabi}cmplt"] = test(lambda order: order.signed_lt(0), 1)
    made[f"__aeabi_{aeabi}cmple"] = test(lambda order: order.signed_lt(1), 1)
    made[f"__aeabi_{aeabi}cmpgt"] = test(lambda order: order.signed_gt(0), -1)
    made[f"__aeabi_{aeabi}cmpge"] = test(lambda order: order.signed_ge(0), -1)
    return made | _named([f"__unord{gnu}2", f"__aeabi_{aeabi}cmpun"], Routine(I32, two, _returning(unordered)))


def _integers(f: Format, gnu: str, aeabi: str) -> dict[str, Routine]:
    """Between a float format and integers."""
    made: dict[str, Routine] = {}
    type = FLOATS[f]
    for integer, width, arm in ((I32, "si", "i"), (I64, "di", "l")):
        for signed, uns, u in ((True, "", ""), (False, "uns", "u")):
            fix = functools.partial(real.to_integer, f, width=integer.width, signed=signed)
            made |= _named([f"__fix{uns}{gnu}{width}", f"__aeabi_{aeabi}2{u}{arm}z"], Routine(integer, (type,), _returning(fix)))
            make = functools.partial(real.from_integer, f, signed=signed)
            names = [f"__float{uns[:2]}{width}{gnu}", f"__aeabi_{u}{arm}2{aeabi}"]
            made |= _named(names, Routine(type, (integer,), _returning(make)))
    return made


def _conversions() -> dict[str, Routine]:
    """Between float formats. Half floats travel as integers in the Arm routines."""
    single, double, half = FLOATS[SINGLE], FLOATS[DOUBLE], FLOATS[HALF]
    made: dict[str, Routine] = {}
    for names, source, target, take, returns in (
        (["__extendsfdf2", "__aeabi_f2d"], SINGLE, DOUBLE, single, double),
        (["__gnu_h2f_ieee", "__aeabi_h2f"], HALF, SINGLE, I16, single),
        (["__extendhfsf2"], HALF, SINGLE, half, single),
    ):
        made |= _named(names, Routine(returns, (take,), _returning(functools.partial(real.widen, source, target))))
    for names, source, target, take, returns in (
        (["__truncdfsf2", "__aeabi_d2f"], DOUBLE, SINGLE, double, single),
        (["__gnu_f2h_ieee", "__aeabi_f2h"], SINGLE, HALF, single, I16),
        (["__truncsfhf2"], SINGLE, HALF, single, half),
    ):
        made |= _named(names, Routine(returns, (take,), _returning(functools.partial(real.narrow, source, target))))
    return made


def _library(f: Format, suffix: str) -> dict[str, Routine]:
    """What C's <math.h> would give."""
    type = FLOATS[f]
    made = {f"sqrt{suffix}": Routine(type, (type,), _returning(functools.partial(real.square_root, f)))}
    made[f"fmod{suffix}"] = Routine(type, (type, type), _returning(functools.partial(real.remainder, f)))
    for mode in ("floor", "ceil", "trunc", "rint"):
        made[f"{mode}{suffix}"] = Routine(type, (type,), _returning(functools.partial(real.to_integral, f, mode=mode)))
    return made


def _blocks(size: ir.IntType) -> dict[str, Routine]:
    """memcpy, memmove and memset, and Arm's forms of them (which return nothing; memset's length comes before its byte)."""
    void, two = ir.VoidType(), (POINTER, POINTER, size)
    made = {"memcpy": Routine(POINTER, two, _copy), "memmove": Routine(POINTER, two, _move)}
    made["memset"] = Routine(POINTER, (POINTER, I32, size), _set)
    for align in ("", "4", "8"):
        made[f"__aeabi_memcpy{align}"] = Routine(void, two, _copy)
        made[f"__aeabi_memmove{align}"] = Routine(void, two, _move)
        made[f"__aeabi_memset{align}"] = Routine(void, (POINTER, size, I32), _set_arm)
        made[f"__aeabi_memclr{align}"] = Routine(void, (POINTER, size), _clear_arm)
    return made


def _end(to: Word) -> None:
    builder = to.builder
    if isinstance(builder.function.function_type.return_type, ir.VoidType):
        builder.ret_void()
    else:
        builder.ret(to.value)


def _copy(target: Target, to: Word, source: Word, nbytes: Word) -> None:
    whole.copy_block(to.builder, to.value, source.value, nbytes, upwards=True)
    _end(to)


def _move(target: Target, to: Word, source: Word, nbytes: Word) -> None:
    builder = to.builder
    with builder.if_then(builder.icmp_unsigned("<", to.value, source.value)):
        _copy(target, to, source, nbytes)
    whole.copy_block(builder, to.value, source.value, nbytes, upwards=False)
    _end(to)


def _set(target: Target, to: Word, byte: Word, nbytes: Word) -> None:
    whole.fill_block(to.builder, to.value, byte, nbytes)
    _end(to)


def _set_arm(target: Target, to: Word, nbytes: Word, byte: Word) -> None:
    _set(target, to, byte, nbytes)


def _clear_arm(target: Target, to: Word, nbytes: Word) -> None:
    _set(target, to, nbytes.of(0), nbytes)
