"""The cycle model: cycles of short pieces of code, counted by hand from the sources that `cores.py` and `dual_issue.py` name."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from aot.bundle import Bundle
from aot.errors import CompileError
from aot.profile import profile
from aot.profile.cores import CORES
from aot.profile.cycles import modelled_cycles
from aot.profile.thumb import decode
from aot.run import run_bundle
from aot.run.execution_log import ExecutionLog
from tests.run.objects import X, arm_object, assembled, bundle, function, needs_qemu, one_layer, port

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

LOOP = "movs r2,#10\n1: subs r2,#1\nbne 1b"
CALLER = function("test_run", "movs r1, #0\nstrb r1, [r0]\npush {r4, lr}\nbl layer_0\nmovs r0, #0\npop {r4, pc}", visible=True)


def code(body: str, cpu: str) -> Bundle:
    """A bundle whose layer is these instructions, then BX LR; at [sp] it finds two words."""
    return assembled(function("layer_0", body.replace(";", "\n") + "\nbx lr") + CALLER, cpu)


def cycles(body: str, cpu: str, wait_states: int = 0) -> int | None:
    return profile(code(body, cpu), [], wait_states).rows[0].cycles


@pytest.mark.parametrize(
    ("cpu", "body", "expected"),  # without BX LR's own
    [
        ("cortex-m0", "ldr r2,[sp]; adds r2,r2,r2", 2 + 1),
        ("cortex-m0", LOOP, 1 + 10 + 9 * 3 + 1),
        ("cortex-m0plus", LOOP, 1 + 10 + 9 * 2 + 1),
        ("cortex-m0plus", "push {r4-r7}; pop {r4-r7}", 5 + 5),
        ("cortex-m0plus", "sub sp,#8; muls r2,r3,r2; str r2,[sp]; add sp,#8", 1 + 1 + 2 + 1),
        ("cortex-m23", "movs r2,#1; movs r3,#1; sdiv r2,r3,r2", 1 + 1 + 17),
        ("cortex-m3", "mla r2,r3,r3,r2; smull r2,r3,r3,r2; umlal r2,r3,r12,r12", 2 + 4 + 5),
        ("cortex-m3", "mov r1,sp; nop; ldr r2,[r1]; ldr r3,[r1],#4", 1 + 1 + 2 + 2),
        ("cortex-m4", "ldr r2,[sp]", 2),
        ("cortex-m4", "ldr r2,[sp]; ldr r3,[sp,#4]", 2 + 1),
        ("cortex-m4", "mov r1,sp; nop; ldr r2,[r1]; ldr r3,[r1],#4", 1 + 1 + 2 + 1),
        ("cortex-m4", "mov r1,sp; ldr r2,[r1]", 1 + 3),
        ("cortex-m4", "ldrd r2,r3,[sp]; ldr r2,[sp]", 3 + 2),
        ("cortex-m4", "push {r4-r7}; pop {r4-r7}", 5 + 5),
        ("cortex-m4", "ldr r2,[sp]; str r2,[sp]; ldr r3,[sp]", 2 + 1 + 2),
        ("cortex-m4", "sub sp,#8; movs r1,#4; nop; str r2,[sp,r1]; add sp,#8", 1 + 1 + 1 + 2 + 1),
        ("cortex-m4", LOOP, 1 + 10 + 9 * 3 + 1),
        ("cortex-m4", "smlad r2,r3,r3,r2; mla r2,r3,r3,r2; smlal r2,r3,r12,r12; sxtb16 r2,r2,ror #8", 4),
        ("cortex-m4", "movs r3,#1; sdiv r2,r3,r3", 1 + 7),
        ("cortex-m4", "vadd.f32 s0,s1,s2; vfma.f32 s0,s1,s2; vmov r2,s0", 1 + 3 + 1),
        ("cortex-m33", "ldr r2,[sp]; ldr r3,[sp,#4]", 2 + 1),
        ("cortex-m7", "add r2,r2,#1; add r3,r3,#1; add r12,r12,#1", 2),
        ("cortex-m7", "add r2,r2,#1; add r2,r2,#1", 2),
        ("cortex-m7", "smlad r2,r3,r3,r2; smlad r2,r3,r3,r2", 2),
        ("cortex-m7", "smlad r2,r3,r3,r2; add r2,r2,#1", 1 + 2),
        ("cortex-m7", "smlad r2,r3,r3,r2; ldr r12,[sp]; smlad r1,r3,r3,r1", 2),
        ("cortex-m7", "ldr r2,[sp]; ldr r3,[sp,#4]; nop", 2),
        ("cortex-m7", "ldr r2,[sp]; ldr r3,[sp]; nop; nop", 3),
        ("cortex-m7", "ldr r2,[sp]; smlad r1,r2,r2,r1", 1 + 2),
        ("cortex-m7", "ldrsb r2,[sp]; add r1,r2,r1", 1 + 2),
        ("cortex-m7", "add r1,r2,r3,lsl #2; add r2,r2,r12,lsl #2", 2),
        ("cortex-m7", "ldrd r2,r3,[sp]; nop", 1 + 1),
        ("cortex-m7", LOOP + "\nnop", 1 + 10 + 8 + 1),
    ],
)
def test_short_pieces(cpu: str, body: str, expected: int) -> None:
    returns = {"cortex-m0": 3, "cortex-m0plus": 2, "cortex-m23": 2, "cortex-m7": 8}.get(cpu, 3)
    assert cycles(body, cpu) == expected + returns


@pytest.mark.parametrize(
    ("cpu", "entry"), [("cortex-m0", 3 + 3 + 4 + 1 + 6), ("cortex-m0plus", 3 + 3 + 3 + 1 + 5), ("cortex-m4", 2 + 3 + 3 + 1 + 5)]
)
def test_calls_and_returns(cpu: str, entry: int) -> None:
    """MOVS and STRB, PUSH of two, BL, MOVS, POP of two with the program counter."""
    assert profile(code("nop", cpu), []).rows[1].cycles == entry


@pytest.mark.parametrize("cpu", ["cortex-m0plus", "cortex-m4"])
def test_wait_states_of_code(cpu: str) -> None:
    body = ".balign 8;" + "nop;" * 8  # and BX LR: 18 bytes, three lines
    plain = cycles(body, cpu)
    assert plain is not None
    assert [cycles(body, cpu, states) for states in (1, 2, 5)] == [plain + 3, plain + 6, plain + 15]


def test_wait_states_of_constants() -> None:
    """Eight words behind the code are four lines; read twice in a row, the last of them is still there."""
    body = "adr r1,2f; nop; ldm r1,{r2-r3}; ldm r1,{r2-r3}; ldr r2,[r1,#24]; ldr r2,[r1]; bx lr; .balign 8; 2: .space 32"
    made = code(body, "cortex-m4")
    trace = run_bundle(made, [], tracing="flash").trace
    assert trace is not None and trace.flash_lines is not None
    assert trace.owners == ("layer_0", "test_run") and trace.flash_lines.tolist() == [3, 0]


def test_a_routine_counts_for_its_caller() -> None:
    routine = function("shared", "1: subs r1,#1\nbne 1b\nbx lr")
    layers = [
        function(f"layer_{n}", f"push {{r4, lr}}\nmovs r1,#{count}\nbl shared\npop {{r4, pc}}") for n, count in enumerate((10, 30))
    ]
    entry = function(
        "test_run", "movs r1, #0\nstrb r1, [r0]\npush {r4, lr}\nbl layer_0\nbl layer_1\nmovs r0, #0\npop {r4, pc}", visible=True
    )
    found = profile(assembled("".join([routine, *layers, entry]), "cortex-m4", ["layer_0", "layer_1"]), [])
    first, second, own = found.rows
    assert first.instructions == 4 + 2 * 10 + 1 and second.instructions == 4 + 2 * 30 + 1 and own.instructions == 7
    assert first.cycles is not None and second.cycles == first.cycles + 20 * 4
    assert found.cycles == first.cycles + second.cycles + (own.cycles or 0)


BRANCHY = "for (int k = 0; k < 50; k++) for (int i = 0; i < 490; i++) if (x[i] & k) w[i & 63] += x[i]; else w[k & 31] ^= x[i] * k"


@pytest.mark.parametrize("cpu", ["cortex-m0", "cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m23", "cortex-m33"])
def test_compiled_code(cpu: str) -> None:
    """Counts add up to the run's, control that leaves comes somewhere, and each instruction costs between half a cycle and twenty."""
    made = one_layer(BRANCHY, cpu)
    result = run_bundle(made, [X], tracing="flash")
    trace = result.trace
    assert trace is not None and result.instructions is not None
    assert result.per_layer == run_bundle(made, [X]).per_layer
    assert trace.entered.sum() == trace.left.sum() > 24500
    found = dict(modelled_cycles(trace, CORES[made.target.cpu]))
    assert result.instructions / 2 <= sum(found.values()) <= result.instructions * 20
    slower = dict(modelled_cycles(trace, CORES[made.target.cpu], 1))
    assert all(slower[name] > found[name] for name in found)


@pytest.mark.parametrize("cpu", ["cortex-m4", "cortex-m33"])
def test_qemu_counts_the_same_layers(cpu: str) -> None:
    needs_qemu()
    made = one_layer(BRANCHY, cpu)
    assert run_bundle(made, [X], "qemu", tracing="code").per_layer == run_bundle(made, [X], "unicorn").per_layer


@pytest.mark.parametrize("cpu", ["cortex-m0plus", "cortex-m4", "cortex-m7"])
def test_as_if_followed_step_by_step(cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same cycles as the core's rules give for QEMU's log of the run, instruction after instruction."""
    needs_qemu()
    made, parts = one_layer(BRANCHY.replace("50", "5"), cpu), []
    count = ExecutionLog._count

    def keep(log: ExecutionLog, addresses: np.ndarray) -> None:
        parts.append((addresses[np.diff(addresses, prepend=log._before) != 0] - log._image.code_address) // 2)
        count(log, addresses)

    monkeypatch.setattr(ExecutionLog, "_count", keep)
    logged, core = run_bundle(made, [X], "qemu", tracing="code"), CORES[made.target.cpu]
    recorded = run_bundle(made, [X], tracing="code")
    assert recorded.trace is not None and logged.per_layer == recorded.per_layer
    halves = np.frombuffer(recorded.trace.image.code + bytes(2), "<u2").astype(int)
    steps = np.concatenate(parts).tolist()
    total, state, jumped, stayed = 0, core.fresh, Counter(), Counter()
    for position, following in zip(steps, [*steps[1:], -1], strict=True):
        instruction = decode(halves[position], halves[position + 1])
        cycles, state = core.step(state, instruction)
        total += cycles
        if following != position + instruction.halves:
            total, state = total + core.jump(instruction), core.fresh
            jumped[position] += 1
        elif instruction.conditional:
            stayed[position] += 1
    total += core.mispredicted * sum(min(jumped[position], stayed[position]) for position in stayed)
    assert sum(dict(modelled_cycles(recorded.trace, core)).values()) == total


def test_helium_has_instructions_and_no_cycles() -> None:
    needs_qemu()
    source = """
        #define LAYER static __attribute__((noipa)) void
        LAYER layer_0(const signed char *x, signed char *w) { for (int i = 0; i < 64; i++) w[i] = x[i] * 3; }
        LAYER layer_1(const signed char *w, signed char *y) { for (int i = 0; i < 12; i++) y[i] = w[5 * i] + 1; }
        int test_run(const signed char *x, signed char *y, signed char *w) { layer_0(x, w); layer_1(w, y); return 0; }
    """
    ports = {"inputs": [port("x", (490,))], "outputs": [port("y", (3, 4))]}
    found = profile(
        bundle(arm_object(source, "cortex-m55", options="-O3"), "cortex-m55", layers=["layer_0", "layer_1"], **ports), [X]
    )
    assert found.cycles is None and found.model == "no cycles: there is no model of cortex-m55"
    counts = [row.instructions or 0 for row in found.rows]
    assert all(count > 3 for count in counts) and abs(sum(counts) - (found.instructions or 0)) <= 4
    np.testing.assert_array_equal(found.result.outputs[0], (X[:60:5] * 3 + 1).astype(np.int8).reshape(3, 4))


def test_no_emulator() -> None:
    with pytest.raises(CompileError, match=r"instructions are counted in an emulator, and this is code for the host.*--cpu"):
        profile(bundle(b"", "host"), [])
