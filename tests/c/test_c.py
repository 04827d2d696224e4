"""C files of bundles: no warnings by gcc and clang, silent sanitizers, the interpreter's bytes, the same text every time."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from aot.driver import Options, compile, compile_model, resolve_target
from aot.errors import CompileError
from aot.graph.interpreter import run as interpreted
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_model
from aot.run import run_bundle
from aot.run.compiled import write_sources
from aot.samples import random_inputs
from aot.verify import differences
from tests.c.program import SANITIZERS, WARNINGS, Program, compilers
from tests.differential.net import Fill, Net, Node, Tensor
from tests.differential.strategies import graphs, single, supported
from tests.differential.table import CASES
from tests.llvm.test_calls import between_layers, compiled
from tests.shared import ROOT, model

SWEEP = bool(os.environ.get("AOT_SWEEP"))
SEED = int(os.environ.get("AOT_SEED", "0"))
COMPILERS = compilers()
C = Options(backend="generic", emit="c", name="m")
BUNDLES = ROOT / "bundles"
MODELS = [BUNDLES / name / f"{name}.tflite" for name in ("digits", "digits_float")]
REAL = (
    "mlperf_tiny/kws_ref_model.tflite",
    "mlperf_tiny/pretrainedResnet_quant.tflite",
    "mlperf_tiny/vww_96_int8.tflite",
    "mlperf_tiny/model_ToyCar_quant_fullint.tflite",
    "tflm/person_detect.tflite",
    "tflm/trained_lstm.tflite",
    "tflm/keyword_scrambled.tflite",
    "tflm/audio_preprocessor_int8.tflite",
    "esphome_mww/alexa.tflite",
)
VARIANTS = {
    "separate": {"weights": "separate"},
    "workspace": {"io": "workspace"},
    "rows": {"optimize": "ram"},
    "stream": {"stream_input": True},
    "pages": {"page_weights_nbytes": 1024},
    "regions": {"regions": {"fast": 1024, "slow": 65536}},
    "loaded": {"regions": {"fast": 4096, "slow": 65536}, "weights_in": "fast"},
    "32 bits": {"target": "cortex-m4"},
    "small core": {"target": "cortex-m0"},
}


def program(path: Path, folder: Path, name: str, **options: object) -> Program:
    return Program(compile(path, options=replace(C, **options)), folder, COMPILERS[name], SANITIZERS[name])


@pytest.mark.parametrize("name", COMPILERS)
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_sample_models(path: Path, name: str, tmp_path: Path) -> None:
    made = program(path, tmp_path, name)
    graph = read_model(path.read_bytes(), path.name, OPERATORS).main
    for number in range(3):
        inputs = random_inputs(made.bundle.main, number)
        expected = interpreted(graph, inputs)
        assert not differences(expected, made.run(inputs)[0])


@pytest.mark.parametrize("variant", VARIANTS)
def test_options(variant: str, tmp_path: Path) -> None:
    """Every way that an entry gets its memory; what objects compute."""
    name = next(iter(COMPILERS))
    options = dict(VARIANTS[variant])
    made = program(MODELS[0], tmp_path, name, **options)
    wanted = run_bundle(
        compile(MODELS[0], options=Options(backend="generic")), inputs := random_inputs(made.bundle.main, 7)
    ).outputs
    for got, expected in zip(made.run(inputs)[0], wanted, strict=True):
        assert np.array_equal(got, expected)


@pytest.mark.skipif(not SWEEP, reason="a sweep: AOT_SWEEP=1")
@pytest.mark.parametrize("name", COMPILERS)
@pytest.mark.parametrize("path", REAL)
def test_real_models(path: str, name: str, tmp_path: Path) -> None:
    made = program(model(path), tmp_path, name)
    reference = compile(model(path), options=Options(backend="generic"))
    held, state = None, b""
    for number in range(2):
        inputs = random_inputs(made.bundle.main, number)
        wanted = run_bundle(reference, inputs, state=held)
        held = wanted.state
        got, state = made.run(inputs, state=state)
        assert state == (held or b"")
        for one, expected in zip(got, wanted.outputs, strict=True):
            assert np.array_equal(one, expected, equal_nan=expected.dtype.kind == "f")


IMAGE = Tensor((1, 26, 20, 1), scale=0.1, zero_point=127)
WINDOW = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "fused_activation_function": "NONE"}
WARNED = {
    "a number compared with itself": Net(
        (IMAGE, Tensor((1, 1, 1, 1), scale=0.02, data=[[[[77]]]]), IMAGE, IMAGE),
        (
            Node("CONV_2D", (0, 1), (2,), options={**WINDOW, "dilation_h_factor": 1, "dilation_w_factor": 1}),
            Node("MINIMUM", (2, 2), (3,), options={}),
        ),
        (0,),
        (3,),
    ),
    "an input that steps pass by, since what is made of it does not depend on it": Net(
        (IMAGE, Tensor((1,), scale=0.05, data=Fill(502)), IMAGE, IMAGE),
        (
            Node("ADD", (0, 1), (2,), options={"fused_activation_function": "RELU"}),
            Node("AVERAGE_POOL_2D", (2,), (3,), options={**WINDOW, "filter_height": 3, "filter_width": 5}),
        ),
        (0,),
        (3,),
    ),
}
"""What a compiler has warned of."""


@pytest.mark.parametrize("name", COMPILERS)
@pytest.mark.parametrize("what", WARNED)
def test_no_warning(what: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(WARNED[what].build())
    made, inputs = program(path, tmp_path, name, optimize="ram"), WARNED[what].arrays()
    assert not differences(interpreted(read_model(path.read_bytes(), path.name, OPERATORS).main, inputs), made.run(inputs)[0])


def operators() -> list[str]:
    """All operators in a sweep, else every sixteenth, others with another seed."""
    known = list(supported())
    return known if SWEEP else known[SEED % 16 :: 16]


def check(net, folder: Path, name: str) -> None:
    """The same bytes by C, with sanitizers, as by the object of the same program."""
    options = replace(C, expose=False)
    target, backend = resolve_target(options)
    try:
        read = read_model(net.build(), "case.tflite", OPERATORS)
        made, reference = (
            compile_model(read, target, backend, replace(options, emit=emit), lambda *_: None) for emit in ("c", "object")
        )
    except CompileError:
        return
    inputs = net.arrays()
    wanted = run_bundle(reference, inputs)
    outputs, state = Program(made, folder, COMPILERS[name], SANITIZERS[name]).run(inputs)
    assert state == (wanted.state or b"")
    for got, expected in zip(outputs, wanted.outputs, strict=True):
        assert np.array_equal(got, expected, equal_nan=expected.dtype.kind == "f"), repr(net)


def examples(strategy: st.SearchStrategy, count: int, number: int, folder: Path) -> None:
    name = list(COMPILERS)[number % len(COMPILERS)]

    @seed(SEED)
    @settings(max_examples=count, database=None, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(strategy)
    def each(case) -> None:
        check(case[0], folder, name)

    each()


@pytest.mark.parametrize("op", operators())
def test_one_operator(op: str, tmp_path: Path) -> None:
    examples(single(CASES[op]), 3 if SWEEP else 1, sorted(CASES).index(op), tmp_path)


@pytest.mark.skipif(not SWEEP, reason="a sweep: AOT_SWEEP=1")
@pytest.mark.parametrize("number", range(20))
def test_graphs(number: int, tmp_path: Path) -> None:
    examples(graphs(), 5, number, tmp_path)


@pytest.mark.parametrize("name", COMPILERS)
def test_calls_of_the_firmware(name: str, tmp_path: Path) -> None:
    """Without warnings, too (what they compute: tests/llvm/test_calls.py)."""
    made = compiled(between_layers(), tmp_path, emit="c", backend="generic")
    for source in write_sources(made, tmp_path):
        done = subprocess.run(
            [*COMPILERS[name], *WARNINGS, "-O2", "-c", source, "-o", "x.o"], cwd=tmp_path, capture_output=True, text=True
        )
        assert not done.returncode, done.stderr


def test_several_models() -> None:
    """Each of a bundle's models runs by itself."""
    paths = [BUNDLES / "digits" / "digits.tflite", BUNDLES / "sine" / "sine.tflite"]
    both = compile(paths, options=replace(C, name="both"))
    for path, part in zip(paths, both.parts, strict=True):
        inputs = random_inputs(part.main, 3)
        wanted = run_bundle(compile(path, options=Options(backend="generic")), inputs).outputs
        assert all(np.array_equal(a, b) for a, b in zip(run_bundle(part, inputs).outputs, wanted, strict=True))


def test_nothing_is_undefined(tmp_path: Path) -> None:
    """As docs/c.md says: with -fno-builtin and -fno-tree-loop-distribute-patterns gcc calls no function that is not there."""
    for path in MODELS:
        made = compile(path, options=C)
        flags = ("-O2", "-ffreestanding", "-fno-builtin", "-fno-tree-loop-distribute-patterns")
        for name, text in {**made.sources, "m.h": "#include <stdint.h>\n"}.items():
            (tmp_path / name).write_text(text)
        if "gcc" not in COMPILERS:
            pytest.skip("no gcc")
        subprocess.run(["gcc", "-std=c99", *flags, "-r", "-nostdlib", *made.sources, "-o", "m.o"], cwd=tmp_path, check=True)
        listed = subprocess.run(["nm", "m.o"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()
        kinds = {line.split()[-1]: line.split()[-2] for line in listed}
        assert not [symbol for symbol, kind in kinds.items() if kind in "UuBbDdCc" and not symbol.startswith("_GLOBAL_OFFSET")]
        assert sorted(symbol for symbol, kind in kinds.items() if kind.isupper() and not symbol.startswith("_")) == [
            "m_run",
            "m_weights",
        ]


def test_the_same_every_time(tmp_path: Path) -> None:
    """Whatever order Python's sets have."""
    texts = set()
    for number in ("0", "1", "2"):
        words = [
            sys.executable,
            "-m",
            "aot",
            "bundle",
            str(MODELS[0]),
            "--emit",
            "c",
            "--backend",
            "generic",
            "-o",
            str(tmp_path / number),
        ]
        subprocess.run(words, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": number})
        texts.add(tuple((path.name, path.read_bytes()) for path in sorted((tmp_path / number).iterdir())))
    assert len(texts) == 1
    names = [name for name, _ in texts.pop()]
    assert names == ["CMakeLists.txt", "digits.c", "digits.h", "digits.json", "digits.report.html", "digits_weights.c"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"target": "cortex-m4", "backend": "cmsis-nn"}, "kernels of cmsis-nn are not C"),
        ({"max_flash_nbytes": 1 << 20}, "--max-flash is for objects"),
        ({"max_stack_nbytes": 512}, "--max-stack is for objects"),
        ({"position_independent": True}, "--pic is for objects"),
        ({"threads": 2}, "--threads is for objects"),
        ({"emit": "rust"}, "rust"),
    ],
)
def test_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(CompileError, match=text):
        compile(MODELS[0], options=replace(C, **options))


def test_warnings_are_those_that_the_docs_name() -> None:
    assert " ".join(flag for flag in WARNINGS if flag != "-Werror") in (ROOT / "docs/c.md").read_text()
