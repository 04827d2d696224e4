"""The neon ending against the definition: what it says it computes, every form, and its instructions on both architectures."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import ir

from aot.backends.layers.requantise import Stage
from aot.backends.neon.ending import Ending
from aot.backends.neon.simd import WORDS4, Simd
from aot.llvm.elf import opened
from aot.llvm.llvm import Compiler
from aot.llvm.types import POINTER
from aot.target import load_target
from tests.backends.test_requantise import definition, stage_of, stages


def sums_of(stage: Stage, ending: Ending, acc: np.ndarray) -> np.ndarray:
    """What a kernel's sums are, for accumulators without a bias of their own."""
    return acc + ending.start[:, None]


@given(stages(), st.integers(0, 1000))
@settings(max_examples=300, deadline=None)
def test_forms_equal_the_definition(stage: Stage, seed: int) -> None:
    rng = np.random.default_rng(seed)
    acc = rng.integers(stage.acc_low[:, None], stage.acc_high[:, None] + 1, (stage.channels, 300))
    ending = Ending.of_stage(stage, np.zeros(stage.channels, np.int64))
    assert (ending.apply(sums_of(stage, ending, acc)) == definition(stage, acc)).all(), ending


@pytest.mark.parametrize("zero_point", [-128, -7, 127])
@pytest.mark.parametrize("scale", [2**-9, 0.0031, 0.3, 0.999, 1.0, 1.7, 40.0])
def test_every_accumulator(scale: float, zero_point: int) -> None:
    reach = 30000
    for low in (zero_point, -128):
        stage = stage_of([scale, scale * 0.7], [-reach] * 2, [reach] * 2, zero_point, (low, 127))
        acc = np.broadcast_to(np.arange(-reach, reach + 1), (2, 2 * reach + 1))
        ending = Ending.of_stage(stage, np.zeros(2, np.int64))
        assert (ending.apply(sums_of(stage, ending, acc)) == definition(stage, acc)).all(), ending


def test_rectified_layers_take_three_and_a_half_instructions_at_most() -> None:
    rng = np.random.default_rng(1)
    scales = 0.003 * np.exp(rng.normal(0, 0.3, 256))
    for zero_point, clamp in ((-128, (-128, 127)), (-5, (-5, 127))):
        ending = Ending.of_stage(stage_of(scales, [-90000] * 256, [90000] * 256, zero_point, clamp), np.zeros(256, np.int64))
        assert (ending.kind, ending.columns) == ("positive", 2), ending.note()
        assert ending.instructions == (3.25 if zero_point == -128 else 3.5)
        alike = Ending.of_stage(stage_of([0.003] * 4, [-90000] * 4, [90000] * 4, zero_point, clamp), np.zeros(4, np.int64))
        assert alike.instructions == ending.instructions - 0.5


STAGES = {
    "positive": stage_of([0.003, 0.002, 0.0025, 0.0035] * 4, [-90000] * 16, [90000] * 16, -4, (-4, 100)),
    "positive by channel": stage_of([0.003, 2e-6, 0.9, 0.1] * 4, [-30000] * 16, [30000] * 16, -128, (-128, 127)),
    "positive and large": stage_of([0.003, 1e-7, 0.9, 0.2] * 4, [-300000] * 16, [300000] * 16, -128, (-100, 127)),
    "positive from -127 on": stage_of([0.003, 0.002, 0.0025, 0.0035] * 4, [-90000] * 16, [90000] * 16, -127, (-127, 127)),
    "saturate": stage_of([0.003, 0.1, 0.3, 0.2] * 4, [-300000] * 16, [300000] * 16, -20, (-20, 127)),
    "signed": stage_of([0.003, 0.002, 0.0025, 0.003] * 4, [-90000] * 16, [90000] * 16, 9, (-128, 127)),
    "signed by channel": stage_of([0.003, 0.0001, 0.04, 0.3] * 4, [-90000] * 16, [90000] * 16, 9, (-128, 127)),
    "exact": stage_of([0.003, 1.7, 40.0, 0.7] * 4, [-90000] * 16, [90000] * 16, -3, (-100, 120)),
    "exact and wrapping": stage_of([2.0**20, 3e6, 2.0**-9, 0.7] * 4, [-90000] * 16, [90000] * 16, -3, (-128, 127)),
}


@pytest.mark.parametrize("vectors", [1, 2, 4])
@pytest.mark.parametrize("core", ["cortex-a53", "cortex-a9"])
@pytest.mark.parametrize("name", STAGES)
def test_instructions(name: str, core: str, vectors: int) -> None:
    """The function sums, table -> bytes on an emulated core, for sums of all sizes."""
    stage = STAGES[name]
    ending = Ending.of_stage(stage, np.zeros(16, np.int64))
    assert ending.kind == name.split()[0], ending
    code = _code(ending, core, vectors)
    table = ending.packed(range(4 * vectors))
    rng = np.random.default_rng(7)
    reach = stage.acc_high[: 4 * vectors]
    for part in (1, 50, 3000):
        acc = rng.integers(np.maximum(stage.acc_low[: 4 * vectors], -(reach // part)), reach // part + 1)
        sums = (acc + ending.start[: 4 * vectors]).astype(np.int32)
        expected = definition(stage, np.concatenate([acc, np.zeros(16 - len(acc), np.int64)])[:, None])[: len(acc), 0]
        assert _run(core, code, sums.tobytes() + table[1:].tobytes(), len(acc)).tolist() == expected.tolist()


def _code(ending: Ending, core: str, vectors: int) -> bytes:
    module = ir.Module("ending")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER, POINTER]), "f")
    builder = ir.IRBuilder(function.append_basic_block())

    def intrinsic(name: str, type: ir.FunctionType) -> ir.Function:
        return module.globals.get(name) or ir.Function(module, type, name)

    simd = Simd(SimpleNamespace(builder=builder, target=load_target(core), intrinsic=intrinsic))  # type: ignore[arg-type]
    rows = [
        [simd.load(function.args[0], WORDS4, 16 * (row * vectors + one)) for one in range(vectors)]
        for row in range(1 + ending.columns)
    ]
    simd.store_lanes(ending.finish(simd, rows[0], list(zip(*rows[1:]))), function.args[1], 4 * vectors)
    builder.ret_void()
    compiler = Compiler(load_target(core))
    return opened(compiler.emit(compiler.parse(str(module)), True).object).get_section_by_name(".text").data()


def _run(core: str, code: bytes, data: bytes, count: int) -> np.ndarray:
    import unicorn
    from unicorn import arm64_const, arm_const

    wide = core != "cortex-a9"
    machine = unicorn.Uc(unicorn.UC_ARCH_ARM64 if wide else unicorn.UC_ARCH_ARM, unicorn.UC_MODE_ARM)
    machine.mem_map(0x10000, 0x10000)
    machine.mem_write(0x10000, code)
    machine.mem_write(0x18000, data)
    if wide:
        registers = (
            arm64_const.UC_ARM64_REG_X0,
            arm64_const.UC_ARM64_REG_X1,
            arm64_const.UC_ARM64_REG_SP,
            arm64_const.UC_ARM64_REG_LR,
        )
    else:
        registers = (arm_const.UC_ARM_REG_R0, arm_const.UC_ARM_REG_R1, arm_const.UC_ARM_REG_SP, arm_const.UC_ARM_REG_LR)
        machine.reg_write(arm_const.UC_ARM_REG_C1_C0_2, 0xF << 20)
        machine.reg_write(arm_const.UC_ARM_REG_FPEXC, 1 << 30)
    for register, value in zip(registers, (0x18000, 0x1C000, 0x1F000, 0x1F000), strict=True):
        machine.reg_write(register, value)
    machine.emu_start(0x10000, 0x1F000)
    return np.frombuffer(machine.mem_read(0x1C000, count), np.int8)
