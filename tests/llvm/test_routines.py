"""The routines that small cores lack, bit for bit against numpy, on edge cases and random operands."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from llvmlite import binding, ir

from aot.llvm import elf
from aot.llvm.llvm import Compiler
from aot.llvm.routines import complete, define, table
from aot.llvm.types import I32, POINTER
from aot.target import host_target, load_target

HOST = host_target()
NUMPY = {"i16": np.uint16, "i32": np.uint32, "i64": np.uint64, "half": np.float16, "float": np.float32, "double": np.float64}


def run_routine(name: str, *operands: np.ndarray) -> np.ndarray:
    """The routine applied to each position of the operands, by code compiled for this machine under another name."""
    address, result, _keep = loop_of(name)
    arrays = [np.ascontiguousarray(operand) for operand in operands]
    out = np.empty(arrays[0].shape, result)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(arrays) + 1), ctypes.c_int32)(address)
    call(*[array.ctypes.data for array in (*arrays, out)], out.size)
    return out


@functools.cache
def loop_of(name: str) -> tuple[int, type, object]:
    """(address, result type, what keeps it alive) of a function that applies a routine to arrays."""
    routine = table(64)[name]
    module = ir.Module(name)
    target = define(module, f"test{name}", name, HOST)
    target.calling_convention = ""  # Arm's, for its own routines
    define_needed(module, target)
    loop = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER] * (len(routine.takes) + 1) + [I32]), "loop")
    before = ir.IRBuilder(loop.append_basic_block())
    body, after = loop.append_basic_block(), loop.append_basic_block()
    before.branch(body)
    builder = ir.IRBuilder(body)
    index = builder.phi(I32)
    values = [builder.load(builder.gep(p, [index], source_etype=t), typ=t) for p, t in zip(loop.args, routine.takes)]
    returned = builder.call(target, values)
    builder.store(returned, builder.gep(loop.args[-2], [index], source_etype=routine.returns))
    following = builder.add(index, I32(1))
    index.add_incoming(I32(0), before.block)
    index.add_incoming(following, body)
    builder.cbranch(builder.icmp_signed("<", following, loop.args[-1]), body, after)
    ir.IRBuilder(after).ret_void()
    engine, address = load(Compiler(HOST), module)
    return address, NUMPY[str(routine.returns)], engine


def define_needed(module: ir.Module, target: ir.Function) -> None:
    """Define the routines that a routine calls by name."""
    for function in list(module.functions):
        if not function.blocks and not function.name.startswith("llvm."):
            define(module, function.name, function.name, HOST)


def load(compiler: Compiler, module: ir.Module) -> tuple[object, int]:
    """An engine with the module's object code, and the address of its function `loop`."""
    code = compiler.emit(compiler.parse(str(module)), False).object
    assert elf.undefined(code) == ()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(jit=True)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine, engine.get_function_address("loop")


def integers(dtype: type, seed: int, count: int = 20_000) -> np.ndarray:
    """Edge cases, and random numbers of every magnitude."""
    bits = 8 * np.dtype(dtype).itemsize
    random = np.random.default_rng(seed)
    edges = [0, 1, 2, 3, 7, 10, (1 << bits) - 1, (1 << bits) - 2, 1 << (bits - 1), (1 << (bits - 1)) - 1, 0x10000, 0xFFFF]
    wide = random.integers(0, 1 << 63, count, np.uint64) * 2 + random.integers(0, 2, count, np.uint64)
    small = wide >> random.integers(0, 64, count).astype(np.uint64)
    return np.concatenate([np.array(edges, np.uint64), small]).astype(dtype)


def floats(dtype: type, seed: int, count: int = 40_000) -> np.ndarray:
    """Edge cases, random bits, and numbers near 1 (in each other's reach)."""
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    random = np.random.default_rng(seed)
    info = np.finfo(dtype)
    edges = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, 3.0, np.inf, -np.inf, np.nan, info.max, -info.max, info.tiny, -info.tiny]
    edges += [info.tiny / 2, float(info.smallest_subnormal), 1 + info.eps, 1 - info.epsneg, 8388607.5, 8388608.0, 2147483648.0]
    raw = integers(bits.type, seed + 1, count).view(dtype)
    near = (random.standard_normal(count) * np.exp2(random.integers(-30, 30, count))).astype(dtype)
    return np.concatenate([np.array(edges, dtype), raw, random.permutation(near)])


def paired(values: Callable[[int], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of the first (edge) values, and the rest against a shuffled copy."""
    a = values(1)
    left, right = np.meshgrid(a[:40], a[:40])
    b = np.random.default_rng(9).permutation(values(2))[: a.size]
    return np.concatenate([left.ravel(), a]), np.concatenate([right.ravel(), b])


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal bit for bit, any NaN for any NaN."""
    assert got.dtype == want.dtype
    bits = np.dtype(f"u{got.itemsize}")
    equal = got.view(bits) == want.view(bits)
    if got.dtype.kind == "f":
        equal |= np.isnan(got) & np.isnan(want)
    wrong = np.flatnonzero(~equal)
    assert not wrong.size, f"{wrong.size} of {got.size} differ, first at {wrong[0]}: {got[wrong[0]]!r}, not {want[wrong[0]]!r}"


UNSIGNED = {"si": np.uint32, "di": np.uint64}
SIGNED = {"si": np.int32, "di": np.int64}


@pytest.mark.parametrize("width", ["si", "di"])
@pytest.mark.parametrize("operation", ["udiv", "umod", "div", "mod"])
def test_division(operation: str, width: str) -> None:
    n, d = paired(functools.partial(integers, UNSIGNED[width]))
    keep = d != 0
    n, d = n[keep], d[keep]
    if operation[0] != "u":
        n, d = n.view(SIGNED[width]), d.view(SIGNED[width])
    pairs = [exact_division(int(x), int(y)) for x, y in zip(n, d)]
    want = [pair[operation.endswith("mod")] & ((1 << 8 * n.itemsize) - 1) for pair in pairs]
    same(run_routine(f"__{operation}{width}3", n, d), np.array(want, UNSIGNED[width]))


def exact_division(n: int, d: int) -> tuple[int, int]:
    """(quotient towards zero, remainder)."""
    quotient = abs(n) // abs(d) * (1 if (n < 0) == (d < 0) else -1)
    return quotient, n - quotient * d


def test_integer_arithmetic() -> None:
    a, b = paired(functools.partial(integers, np.uint64))
    same(run_routine("__muldi3", a, b), a * b)
    same(run_routine("__mulsi3", a.astype(np.uint32), b.astype(np.uint32)), a.astype(np.uint32) * b.astype(np.uint32))
    count = np.arange(a.size, dtype=np.uint32) % 64
    same(run_routine("__ashldi3", a, count), a << count)
    same(run_routine("__lshrdi3", a, count), a >> count)
    same(run_routine("__ashrdi3", a, count), (a.view(np.int64) >> count.astype(np.int64)).view(np.uint64))
    low = a.astype(np.uint32)
    same(run_routine("__clzsi2", low), np.array([32 - int(x).bit_length() for x in low], np.uint32))


FLOATS = {"sf": np.float32, "df": np.float64}


@pytest.mark.parametrize("form", ["sf", "df"])
@pytest.mark.parametrize("operation", ["add", "sub", "mul", "div"])
def test_float_arithmetic(operation: str, form: str) -> None:
    a, b = paired(functools.partial(floats, FLOATS[form]))
    compute = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[operation]
    with np.errstate(all="ignore"):
        same(run_routine(f"__{operation}{form}3", a, b), compute(a, b))


@pytest.mark.parametrize("form", ["sf", "df"])
def test_float_comparisons(form: str) -> None:
    a, b = paired(functools.partial(floats, FLOATS[form]))
    b[::3] = a[::3]
    tests = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
    for name, compare in tests.items():
        got = run_routine(f"__{name}{form}2", a, b).view(np.int32)
        assert np.array_equal(tests[name](got, 0), compare(a, b)), name
    assert np.array_equal(run_routine(f"__unord{form}2", a, b) != 0, np.isnan(a) | np.isnan(b))
    short = {"sf": "f", "df": "d"}[form]
    for name in ("eq", "lt", "le", "gt", "ge"):
        want = tests[name](a, b).astype(np.uint32)
        assert np.array_equal(run_routine(f"__aeabi_{short}cmp{name}", a, b), want), name


@pytest.mark.parametrize("form", ["sf", "df"])
def test_float_to_integer(form: str) -> None:
    x = floats(FLOATS[form], 3)
    x = x[np.isfinite(x)]
    exact = np.trunc(x.astype(np.float64))
    for width, bits in (("si", 32), ("di", 64)):
        for name, low, high, dtype in (("fix", -(1 << (bits - 1)), 1 << (bits - 1), SIGNED), ("fixuns", 0, 1 << bits, UNSIGNED)):
            fits = (exact >= low) & (exact < high)
            want = exact[fits].astype(dtype[width])
            same(run_routine(f"__{name}{form}{width}", x[fits]), want.view(UNSIGNED[width]))
            beyond = x[~fits]
            got = run_routine(f"__{name}{form}{width}", beyond).view(dtype[width])
            assert [int(value) for value in got] == [low if x < 0 else high - 1 for x in beyond]


@pytest.mark.parametrize("form", ["sf", "df"])
def test_integer_to_float(form: str) -> None:
    for width in ("si", "di"):
        x = integers(UNSIGNED[width], 4)
        same(run_routine(f"__floatun{width}{form}", x), x.astype(FLOATS[form]))
        same(run_routine(f"__float{width}{form}", x), x.view(SIGNED[width]).astype(FLOATS[form]))


def test_float_formats() -> None:
    single, double, half = floats(np.float32, 5), floats(np.float64, 6), np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(all="ignore"):
        same(run_routine("__extendsfdf2", single), single.astype(np.float64))
        same(
            run_routine("__truncdfsf2", np.concatenate([double, single.astype(np.float64)])),
            np.concatenate([double.astype(np.float32), single]),
        )
        same(run_routine("__gnu_h2f_ieee", half), half.view(np.float16).astype(np.float32))
        same(run_routine("__gnu_f2h_ieee", single).view(np.float16), single.astype(np.float16))


@pytest.mark.parametrize(("suffix", "dtype"), [("f", np.float32), ("", np.float64)])
def test_library(suffix: str, dtype: type) -> None:
    x = floats(dtype, 7)
    halves = (np.arange(-4000, 4000) / 4).astype(dtype)
    x = np.concatenate([x, halves])
    with np.errstate(all="ignore"):
        for name, compute in (("sqrt", np.sqrt), ("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("rint", np.rint)):
            same(run_routine(name + suffix, x), compute(x))
        a, b = paired(functools.partial(floats, dtype))
        same(run_routine("fmod" + suffix, a, b), np.fmod(a, b))


def block_routine(name: str, types: list) -> Callable:
    """A routine on blocks of memory as a Python function."""
    module = ir.Module(name)
    define(module, "loop", name, HOST).calling_convention = ""
    engine, address = load(Compiler(HOST), module)
    call = ctypes.CFUNCTYPE(ctypes.c_void_p, *types)(address)
    call.engine = engine  # type: ignore[attr-defined]  # keeps the code alive
    return call


def test_blocks() -> None:
    """Copies (overlapping ones too) and fills touch exactly their bytes; C's forms return the target."""
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    copies = [
        block_routine(name, [pointer, pointer, size]) for name in ("memcpy", "memmove", "__aeabi_memcpy4", "__aeabi_memmove8")
    ]
    for position, copy in enumerate(copies):
        for source, target, nbytes in ((0, 20, 7), (3, 50, 0), (0, 30, 30), (10, 14, 20), (14, 10, 20)):
            if abs(source - target) < nbytes and not position % 2:
                continue
            block = np.arange(100, dtype=np.uint8)
            want = block.copy()
            want[target : target + nbytes] = block[source : source + nbytes]
            returned = copy(block.ctypes.data + target, block.ctypes.data + source, nbytes)
            assert np.array_equal(block, want)
            assert position > 1 or returned == block.ctypes.data + target
    block = np.zeros(50, np.uint8)
    assert block_routine("memset", [pointer, number, size])(block.ctypes.data + 5, 0x1A7, 10) == block.ctypes.data + 5
    block_routine("__aeabi_memset", [pointer, size, number])(block.ctypes.data + 20, 4, 9)
    block_routine("__aeabi_memclr", [pointer, size])(block.ctypes.data + 7, 2)
    want = [0] * 5 + [0xA7] * 2 + [0] * 2 + [0xA7] * 6 + [0] * 5 + [9] * 4 + [0] * 26
    assert block.tolist() == want


def test_hexagon_asks_for_nothing_else() -> None:
    """Every division, float operation and aligned copy, on cores with and without arithmetic of doubles."""
    text = ["declare void @llvm.memcpy.p0.p0.i32(ptr, ptr, i32, i1)"]
    text.append(
        "define void @copy(ptr %a, ptr %b) { call void @llvm.memcpy.p0.p0.i32(ptr align 8 %a, ptr align 8 %b, i32 640, i1 0) ret void }"
    )
    whole, real = ("udiv", "sdiv", "urem", "srem", "mul", "shl", "lshr", "ashr"), ("fadd", "fsub", "fmul", "fdiv", "frem")
    for types, operations in ((("i32", "i64"), whole), (("half", "float", "double"), real)):
        for type in types:
            for name in operations:
                text.append(f"define {type} @{name}_{type}({type} %a, {type} %b) {{ %c = {name} {type} %a, %b ret {type} %c }}")
    for type, suffix in (("float", "f32"), ("double", "f64")):
        for name in ("sqrt", "floor", "ceil", "trunc", "rint"):
            text.append(f"declare {type} @llvm.{name}.{suffix}({type})")
            text.append(
                f"define {type} @{name}_{type}({type} %a) {{ %c = call {type} @llvm.{name}.{suffix}({type} %a) ret {type} %c }}"
            )
    for cpu in ("hexagonv68", "hexagonv60"):
        compiler = Compiler(replace(load_target("hexagonv68"), cpu=cpu))
        module = compiler.parse(f'target triple = "{compiler.target.triple}"\n' + "\n".join(text))
        exported = [line.split("@")[1].split("(")[0] for line in text if line.startswith("define")]
        first, finished = compiler.emit(module, False), complete(compiler, module, exported, False, "every")
        assert any(name.startswith("__hexagon_") for name in elf.undefined(first.object))
        assert elf.undefined(finished.emission.object) == ()
