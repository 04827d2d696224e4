"""What the object file promises: sections, symbols, linking, determinism, return codes, options; and the stack bound's parts."""

from __future__ import annotations

import ctypes
import io
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from llvmlite import binding, ir

from aot.bundle import Bundle
from aot.errors import CompileError, InternalError
from aot.graph.expr import Acc, Binary, Cast, Const, Expr, Load, Requantise, Table, Unary, axis, clamp, fixed, integer, real
from aot.graph.ir import DType
from aot.graph.primitive import Contract, Map, Reduce
from aot.llvm import elf
from aot.llvm.constants import Pool
from aot.llvm.emission import KernelFunction, distinct_names
from aot.llvm.llvm import Compiler
from aot.llvm.module import EntrySource, emit_bundle
from aot.llvm.stack import deepest
from aot.lower.implementation import Implementation
from aot.lower.program import Buffer, Program
from aot.target import Target, host_target, load_target, triple_target
from tests.llvm.compiled import bundle_of, check, plan_of, program_of

HOST = host_target()
OPTIONS = [{"weights": "separate"}, {"io": "workspace"}, {"pic": True}, {"io": "workspace", "weights": "separate"}]
ARM = ["cortex-m0", "cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m23", "cortex-m33", "cortex-m55", "cortex-m85"]
TRIPLES = ["aarch64-none-elf", "armv7a-linux-gnueabihf", "thumbv6m-none-unknown-eabi", "riscv32-unknown-elf", "riscv64-unknown-elf"]


def all_targets() -> list[Target]:
    return [HOST, *map(load_target, [*ARM, "riscv32", "riscv64"]), *map(triple_target, TRIPLES)]


def sample() -> tuple[Program, dict[str, np.ndarray]]:
    """A program with everything that needs routines somewhere: requantisation, division, tables, floats, 64-bit sums."""
    random = np.random.default_rng(0)
    arrays = {
        "x": random.integers(-128, 128, (6, 8)).astype(np.int8),
        "f": random.standard_normal((6, 8)).astype(np.float32),
        "w": random.integers(-127, 128, (4, 8)).astype(np.int8),
        "m": random.integers(1 << 30, 1 << 31, 4).astype(np.int32),
        "s": np.array([-8, -9, 1, -7], np.int32),
        "b": np.array([1000, -2000, 3, 40], np.int32),
    }
    x, f = Load("x", (axis(0), axis(1)), DType.INT8), Load("f", (axis(0), axis(1)), DType.FLOAT32)
    vector = [Load(name, (axis(1),), DType.INT32) for name in "msb"]
    scaled = Cast(clamp(Requantise(Acc(DType.INT32), *vector[:2]), -128, 127), DType.INT8)
    left, right = Load("x", (axis(0), axis(2)), DType.INT8), Load("w", (axis(1), axis(2)), DType.INT8)
    dense = Contract("dense", (6, 4), (8,), left, right, 3, 0, vector[2], scaled)
    wide = Cast(x, DType.INT64)
    square: Expr = Binary(
        "div", Binary("mul", wide, wide), Cast(Binary("add", Cast(x, DType.INT64), integer(200, DType.INT64)), DType.INT64)
    )
    floats: Expr = Unary("rint", Binary("div", Unary("sqrt", Unary("abs", f)), Binary("add", f, real(3.5))))
    picked = Load("x", (Table(0, (3, 0, 5, 1, 1, 4)), axis(1)), DType.INT8)
    total = Reduce(
        "total", (8,), (6,), "add", integer(0), Cast(Load("x", (axis(1), axis(0)), DType.INT8), DType.INT32), Acc(DType.INT32)
    )
    maps = [Map("square", (6, 8), square), Map("floats", (6, 8), floats), Map("picked", (6, 8), picked)]
    outputs = {
        "dense": (DType.INT8, (6, 4)),
        "square": (DType.INT64, (6, 8)),
        "floats": (DType.FLOAT32, (6, 8)),
        "picked": (DType.INT8, (6, 8)),
        "total": (DType.INT32, (8,)),
    }
    return program_of([dense, *maps, total], arrays, outputs, ("w", "m", "s", "b")), arrays


def chain() -> tuple[Program, dict[str, np.ndarray]]:
    """Two Maps through the workspace, the second in place."""
    arrays = {"x": np.arange(-20, 20, dtype=np.int8)}
    x = Load("x", (axis(0),), DType.INT8)
    program = program_of([Map("t", (40,), Binary("add", x, Const(1, DType.INT8)))], arrays, {"t": (DType.INT8, (40,))})
    buffers = (
        program["x"],
        *(Buffer(name, DType.INT8, (40,), "temporary") for name in "tu"),
        Buffer("y", DType.INT8, (40,), "output"),
    )
    steps = [Map(out, (40,), Binary("mul", Load(name, (axis(0),), DType.INT8), Const(3, DType.INT8))) for name, out in ("tu", "uy")]
    return Program("sample", buffers, (program.instructions[0], *steps), ("x",), ("y",)), arrays


def sections(code: bytes) -> dict[str, int]:
    """Flags of the sections that take memory."""
    return {s.name: s["sh_flags"] for s in ELFFile(io.BytesIO(code)).iter_sections() if s["sh_flags"] & 2 and s["sh_size"]}


@pytest.mark.parametrize("target", all_targets(), ids=lambda target: target.name)
def test_object(target: Target) -> None:
    """Nothing undefined, one global function, own sections for code and constants, nothing writable; equal bytes again."""
    program, _ = sample()
    bundle = bundle_of(program, target)
    file = ELFFile(io.BytesIO(bundle.object))
    symbols = list(file.get_section_by_name(".symtab").iter_symbols())
    assert not [s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF" and s.name]
    assert [s.name for s in symbols if s["st_info"]["bind"] == "STB_GLOBAL"] == ["sample_run"]
    functions = elf.functions(bundle.object)
    assert all(functions[layer.symbol] > 0 for layer in bundle.main.layers)
    flags = sections(bundle.object)
    assert flags.pop(".text.aot.sample") & 0x7 == 6
    assert flags.pop(".rodata.aot.sample") & 0x7 == 2
    assert set(flags) <= ({".rodata.cst16", ".rodata.cst8", ".rodata.cst4"} if not target.triple.startswith("thumb") else set())
    assert bundle.main.stack_nbytes > 0
    assert bundle_of(program, target).object == bundle.object


@pytest.mark.parametrize("name", ["host", "cortex-m0", "cortex-m4", "cortex-m33"])
def test_sample_runs(name: str) -> None:
    if name != "host":
        pytest.importorskip("unicorn")
    program, arrays = sample()
    check(program, arrays, HOST if name == "host" else load_target(name))


@pytest.mark.parametrize("name", ["host", "cortex-m0", "cortex-m4"])
@pytest.mark.parametrize(
    "options", [{"weights": "separate"}, {"io": "workspace"}, {"pic": True}, {"io": "workspace", "weights": "separate"}], ids=str
)
def test_options(name: str, options: dict) -> None:
    if name != "host":
        pytest.importorskip("unicorn")
    for program, arrays in (sample(), chain()):
        bundle = check(program, arrays, HOST if name == "host" else load_target(name), **options)
        embedded = ".rodata.aot.sample" in sections(bundle.object)
        assert embedded == (bundle.weights_nbytes > 0 and "weights" not in options)
        literals = bundle.weights_nbytes - len(bundle.weights or b"")
        assert bundle.weights is None or literals == 0 or (name == "host" and literals < 100)


def test_position_independent_code_has_no_absolute_addresses() -> None:
    program, _ = sample()
    for name in ("cortex-m0", "cortex-m4"):
        bundle = bundle_of(program, load_target(name), pic=True)
        kinds = {relocation["r_info_type"] for relocation in relocations(bundle.object)}
        assert kinds and not kinds & {2, 43, 44, 47, 48}, kinds  # R_ARM_ABS32, MOVW/MOVT and their Thumb forms


def relocations(code: bytes) -> list:
    file = ELFFile(io.BytesIO(code))
    return [each for s in file.iter_sections() if s["sh_type"] in ("SHT_REL", "SHT_RELA") for each in s.iter_relocations()]


@pytest.mark.parametrize("name", ARM)
def test_arm_attributes(name: str) -> None:
    """Fit for hard- and soft-float firmware; no exception tables; mapping symbols present."""
    program, _ = sample()
    code = bundle_of(program, load_target(name)).object
    file = ELFFile(io.BytesIO(code))
    tags = {
        a.tag: a.value
        for sub in file.get_section_by_name(".ARM.attributes").subsections
        for s in sub.subsubsections
        for a in s.attributes
    }
    assert tags["TAG_ABI_VFP_ARGS"] == 3
    assert not [s.name for s in file.iter_sections() if "exidx" in s.name or "extab" in s.name]
    names = {s.name for s in file.get_section_by_name(".symtab").iter_symbols()}
    assert "$t" in names


def test_attribute_is_replaced_not_doubled() -> None:
    body = b"\x05cortex-m4\0" + bytes([6, 13, 28, 1, 38, 1])
    inner = bytes([1]) + (len(body) + 5).to_bytes(4, "little") + body
    section = b"A" + (4 + 6 + len(inner)).to_bytes(4, "little") + b"aeabi\0" + inner
    changed = elf.set_attribute(section, 28, 3)
    assert len(changed) == len(section)
    assert changed.endswith(bytes([6, 13, 38, 1, 28, 3]))
    with pytest.raises(InternalError, match="unexpected Arm build attributes"):
        elf.set_attribute(b"B" + section[1:], 28, 3)


FIRMWARE = """
int one_run(const void *, void *, void *);
int two_run(const void *, void *, void *);
float scale(float x) { return 2 * x; }
void _start(void) { one_run(0, 0, 0); two_run(0, 0, 0); scale(1); }
"""


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="arm-none-eabi-gcc is not installed")
@pytest.mark.parametrize("floats", ["hard", "soft", "softfp"])
def test_two_bundles_link_with_firmware(floats: str, tmp_path: Path) -> None:
    """Two objects and firmware of either float ABI, by GNU ld, without warnings; no symbol clashes, none is missing."""
    program, _ = chain()
    plan = plan_of(program, load_target("cortex-m4"))
    for name in ("one", "two"):
        source = EntrySource(f"{name}_run", plan, *ports_of(program))
        (tmp_path / f"{name}.o").write_bytes(emit_bundle(name, load_target("cortex-m4"), [source]).object)
    (tmp_path / "main.c").write_text(FIRMWARE)
    command = [
        "arm-none-eabi-gcc",
        "-mcpu=cortex-m4",
        "-mthumb",
        f"-mfloat-abi={floats}",
        "-ffreestanding",
        "-nostdlib",
        "-Wl,--fatal-warnings",
    ]
    command += ["main.c", "one.o", "two.o", "-lgcc", "-o", "out.elf"] + (["-mfpu=fpv4-sp-d16"] if floats != "soft" else [])
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0 and not built.stderr, built.stderr
    missing = subprocess.run(["arm-none-eabi-nm", "-u", "one.o", "two.o"], cwd=tmp_path, capture_output=True, text=True).stdout
    assert " U " not in missing


def ports_of(program: Program) -> tuple:
    from aot import driver

    target = load_target("cortex-m4")
    return driver.ports(program, plan_of(program, target), target, driver.Options())


def test_two_entries_share_constants() -> None:
    """Each entry has its own function and layers; equal constants are stored once."""
    program, _ = sample()
    target = load_target("cortex-m4")
    plan, ports = plan_of(program, target), ports_of(program)
    once = emit_bundle("sample", target, [EntrySource("sample_run", plan, *ports)])
    both = emit_bundle("sample", target, [EntrySource("sample_run", plan, *ports), EntrySource("sample_more_run", plan, *ports)])
    assert both.weights_nbytes == once.weights_nbytes
    assert both.layer_symbols["sample_run"] == tuple(f"sample_k{n:02d}" for n in range(5))
    assert both.layer_symbols["sample_more_run"] == tuple(f"sample_k{n:02d}" for n in range(5, 10))
    assert both.stack["sample_run"].nbytes == both.stack["sample_more_run"].nbytes == once.stack["sample_run"].nbytes


def call_on_host(bundle: Bundle, *pointers: int) -> int:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(jit=True)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(bundle.object))
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * len(pointers))(engine.get_function_address(bundle.main.symbol))
    return function(*pointers)


def test_return_codes() -> None:
    """0; -1 for a null pointer; -2 for a misaligned one; outputs stay as they are in both cases."""
    program, arrays = chain()
    bundle = bundle_of(program, HOST)
    x, out, space = arrays["x"].copy(), np.full(40, 55, np.int8), np.zeros(bundle.workspace_nbytes + 64, np.uint8)
    aligned = space.ctypes.data + -space.ctypes.data % 16
    places = [x.ctypes.data, out.ctypes.data, aligned]
    for position in range(3):
        assert call_on_host(bundle, *(0 if n == position else place for n, place in enumerate(places))) == -1
    assert call_on_host(bundle, *places[:2], aligned + 1) == -2
    assert (out == 55).all()
    assert call_on_host(bundle, *places) == 0
    assert np.array_equal(out, ((arrays["x"].astype(int) + 1) * 9).astype(np.int8))


def test_in_place_pointers_are_not_noalias() -> None:
    program, _ = chain()
    implementations = [choice.implementation for choice in plan_of(program, HOST).schedule.choices]
    assert implementations[1].overwrites == ("t",)
    assert distinct_names(implementations[1], program) == frozenset()
    assert distinct_names(implementations[0], program) == frozenset({"x", "t"}) or implementations[0].overwrites == ("x",)


def test_ordered_code_is_not_rescheduled() -> None:
    """The style decides whether LLVM's machine scheduler runs: sums stored one by one keep their places only in ordered code."""
    lines = ["define void @f(ptr noalias %p, ptr noalias %q, i32 %n) nounwind {", "%s0 = add i32 %n, 0"]
    for k in range(1, 24):
        lines += [f"%p{k} = getelementptr i32, ptr %p, i32 {k}", f"%a{k} = load i32, ptr %p{k}", f"%m{k} = mul i32 %a{k}, %n"]
        lines += [f"%q{k} = getelementptr i32, ptr %q, i32 {k}", f"%s{k} = add i32 %s{k - 1}, %m{k}", f"store i32 %s{k}, ptr %q{k}"]
    compiler = Compiler(load_target("cortex-m4"))
    bitcode = compiler.parse("\n".join([*lines, "ret void", "}"]))
    ordered, generic = compiler.assembly(bitcode, True), compiler.assembly(bitcode, False)
    assert ordered != generic
    assert (ordered, generic) == (compiler.assembly(bitcode, True), compiler.assembly(bitcode, False))


def test_emission_does_not_depend_on_what_ran_before() -> None:
    """LLVM's scheduler option belongs to the process: switching it leaves no trace."""
    program, target = sample()[0], load_target("cortex-m0")
    first = bundle_of(program, target).object
    compiler = Compiler(load_target("cortex-m4"))
    compiler.emit(compiler.parse("define void @f() nounwind { ret void }"), ordered=True)
    compiler.emit(compiler.parse("define void @f() nounwind { ret void }"), ordered=False)
    assert bundle_of(program, target).object == first


def test_frames_and_calls_bound_the_stack() -> None:
    calls = {"run": {"a", "b"}, "a": {"c"}, "b": {"c"}, "c": set()}
    frames = {"run": 8, "a": 100, "b": 16, "c": 32}
    assert deepest("run", calls, frames, load_target("cortex-m4")).nbytes == 140
    assert deepest("run", calls, frames, HOST).nbytes == 140 + 3 * 8 * HOST.triple.startswith("x86_64")
    with pytest.raises(InternalError, match="a calls itself: run -> a -> c"):
        deepest("run", {**calls, "c": {"a"}}, frames, HOST)


def test_frame_sizes_come_from_llvm() -> None:
    head = 'define void @f(ptr %p) nounwind "warn-stack-size"="0" {'
    text = head + " %x = alloca [100 x i32]\n store volatile i32 0, ptr %x\n ret void }"
    for target in all_targets():
        compiler = Compiler(target)
        frames = compiler.emit(compiler.parse(text), False).frames
        assert 400 <= frames["f"] <= 448 or (target is HOST and frames["f"] >= 272), target.name  # x86-64 may use its red zone


def test_equal_constants_are_stored_once() -> None:
    pool = Pool("p")
    a, b = np.arange(10, dtype=np.int8), np.arange(3, dtype=np.int64)
    first = pool.add(Buffer("a", DType.INT8, (10,), "constant", data=a))
    second = pool.add(Buffer("b", DType.INT64, (3,), "constant", data=b))
    again = pool.add(Buffer("c", DType.INT8, (10,), "constant", data=a.copy()))
    assert (first, second, again) == (0, 16, 0)
    assert pool.block() == a.tobytes() + bytes(6) + b.tobytes()
    with pytest.raises(InternalError, match="asks for an alignment of 16 bytes"):
        pool.add(Buffer("d", DType.INT8, (10,), "constant", data=a, align=16))


@pytest.mark.parametrize(
    ("triple", "text"),
    [
        ("x86_64-apple-darwin", "for MachO objects"),
        ("x86_64-pc-windows-msvc", "for COFF objects"),
        ("powerpc64-unknown-elf", "is big-endian"),
        ("avr-unknown-unknown", "needs the routine"),
    ],
)
def test_targets_that_do_not_work_are_refused(triple: str, text: str) -> None:
    program, _ = sample()
    with pytest.raises(CompileError, match=text):
        bundle_of(program, triple_target(triple))


def test_unknown_names_are_faults_of_ours() -> None:
    program, _ = chain()
    module = ir.Module("m")
    implementation = Implementation("k", program.instructions[0], ("x",), ("t",), (), lambda function: None)
    function = KernelFunction(module, "k", implementation, program, HOST)
    with pytest.raises(InternalError, match="%u is not a parameter"):
        function.pointer("u")
    with pytest.raises(InternalError, match="acc outside"):
        function.value(Acc(DType.INT32), {})
    with pytest.raises(InternalError, match="axis 0 has no value"):
        function.value(Load("x", (axis(0),), DType.INT8), {})
    with pytest.raises(InternalError, match="2 indices for shape"):
        function.value(Load("x", (fixed(0), fixed(0)), DType.INT8), {})
    with pytest.raises(InternalError, match="LLVM refuses"):
        Compiler(HOST).parse("define void @f() { ret i32 0 }")
