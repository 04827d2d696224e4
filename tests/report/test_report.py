"""Reports: every figure is the bundle's, every form says the same, hostile names stay text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import aot
from aot import cli
from aot.artefacts import describe_with_files as describe
from aot.bundle import Bundle
from aot.report import SCHEMA, html, report
from aot.report.findings import findings
from tests.builder import ModelBuilder
from tests.cli.test_artefacts import make_bundle
from tests.shared import ROOT

DIGITS, SINE = (str(ROOT / "bundles" / name / f"{name}.tflite") for name in ("digits", "sine"))
HOSTILE = "</script><script>alert(1)</script><!-- \" ' & `x` {{ 7 * 7 }} \u202e\x00\x1b[31m"
VALIDATOR = jsonschema.Draft202012Validator(json.loads((files("aot") / "report" / "schema.json").read_text()))


def compiled(*paths: str, **options: Any) -> Bundle:
    return aot.compile(list(paths), options=aot.Options(**{"target": "cortex-m4", **options}))


WAYS: dict[str, Callable[[], Bundle]] = {
    "plain": lambda: compiled(DIGITS),
    "rows": lambda: compiled(DIGITS, optimize="ram"),
    "io in workspace": lambda: compiled(DIGITS, io="workspace"),
    "several": lambda: compiled(DIGITS, SINE, name="both", share_workspace=True),
    "c": lambda: compiled(DIGITS, backend="generic", emit="c"),
    "regions": lambda: compiled(DIGITS, regions={"fast": 512, "slow": 4096}),
    "pages": lambda: compiled(DIGITS, page_weights_nbytes=4096),
    "stream": lambda: compiled(DIGITS, stream_input=True),
    "threads": lambda: compiled(DIGITS, target="cortex-a53", threads=2),
    "not in place": lambda: compiled(DIGITS, inplace=False),
    "no plan": lambda: replace(make_bundle(label=HOSTILE), object=b""),
}


@cache
def bundle(way: str) -> Bundle:
    """Compiled once for all tests."""
    return WAYS[way]()


@pytest.mark.parametrize("way", WAYS)
def test_every_kind_of_bundle(way: str) -> None:
    of = bundle(way)
    made = json.loads(json.dumps(report(of)))
    VALIDATOR.validate(made)
    assert made["schema"] == SCHEMA == VALIDATOR.schema["$id"] and made["bundle"] == describe(of)
    for described, added, entry in zip(made["bundle"]["entries"], made["entries"], of.entries, strict=True):
        assert [one["symbol"] for one in added["layers"]] == [one["symbol"] for one in described["layers"]]
        assert [one["name"] for one in added["buffers"]] == [one["name"] for one in described["buffers"]]
        assert entry.memory is None or max(added["needed_bytes"]) == described["memory"]["peak"]["bytes"]
        assert len(added["needed_bytes"]) == len(added["steps"])
        _check_extents(described, added)
    flash = made["flash"]
    assert sum(one["bytes"] for one in flash["code"]) == (0 if of.is_c or way == "no plan" else of.code_nbytes)
    whole = sum(one["bytes"] for one in flash["constants"]) - flash["shared_constants_bytes"] + flash["other_constants_bytes"]
    assert whole == of.weights_nbytes + len(of.pages or b"")
    assert flash["other_constants_bytes"] >= 0
    page = html(report(of))
    assert page == html(report(of)) and "{{" not in page.replace("{{ 7 * 7 }}", "") and "http" not in page.replace("http-equiv", "")
    for path, shown in re.findall(r'data-path="([^"]+)">([^<]*)<', page):
        value: Any = made["bundle"]
        for key in path.split("."):
            value = value[int(key)] if isinstance(value, list) else value[key]
        assert shown.replace(",", "") == (
            "–" if value is None else "×".join(map(str, value)) if isinstance(value, list) else str(value)
        )


def _check_extents(described: dict[str, Any], added: dict[str, Any]) -> None:
    """Each extent is within its buffer's bytes and steps; where two overlap, one is needed for the last time in the step that writes the other."""
    placed = []
    for place, one in zip(described["buffers"], added["buffers"], strict=True):
        region = next(
            (each["workspace_bytes"] for each in described["regions"] if each["name"] == place["region"]),
            described["workspace_bytes"],
        )
        assert one["why"]
        for low, high, first, last in one["extents"]:
            assert 0 <= low < high <= place["bytes"] and place["offset"] + high <= region
            assert place["first_step"] <= first <= last <= place["last_step"]
            placed.append((place["name"], place["region"], place["offset"] + low, place["offset"] + high, first, last))
    for number, (name, region, low, high, first, last) in enumerate(placed):
        for other in placed[:number]:
            if other[0] != name and other[1] == region and other[2] < high and low < other[3]:
                assert min(last, other[5]) - max(first, other[4]) <= 0, (name, other[0])


def test_why_a_buffer_lies_where_it_does() -> None:
    assert not any(one["why"].startswith(("over", "in place")) for one in report(bundle("not in place"))["entries"][0]["buffers"])
    plain = {one["label"]: one["why"] for one in report(bundle("plain"))["entries"][0]["buffers"]}
    assert plain["depthwise_2"].startswith("over conv_0: 64 bytes below its start (skewed)")
    assert plain["scratch of layer 0"].startswith(
        "needed only while its layer computes; at the lowest free offset, with conv_0 below"
    )
    assert all("in fast:" in one["why"] or "in slow:" in one["why"] for one in report(bundle("regions"))["entries"][0]["buffers"])


def test_graphs_name_each_other() -> None:
    graphs = report(bundle("plain"))["entries"][0]["graphs"]
    nodes = {one["node"]: one for one in graphs["model"]["nodes"] if one["kind"] == "node"}
    layers = {one["layer"]: one for one in graphs["fused"]["nodes"] if one["kind"] == "layer"}
    assert {(node, layer) for node, one in nodes.items() for layer in one["layers"]} == {
        (node, layer) for layer, one in layers.items() for node in one["model_nodes"]
    }
    assert [graph["nodes"][0]["kind"] + graph["nodes"][-1]["kind"] for graph in graphs.values()] == ["inputoutput"] * 2
    for graph in graphs.values():
        assert {end for _, end in graph["edges"]} == set(range(1, len(graph["nodes"])))


@pytest.fixture
def hostile(tmp_path: Path) -> str:
    """A float model whose every name is hostile."""
    model = ModelBuilder()
    first = model.tensor(HOSTILE, (1, 8), "float32")
    weights = model.constant(np.ones((4, 8), np.float32), name=HOSTILE)
    out = model.tensor(HOSTILE + "2", (1, 4), "float32")
    model.operator("FULLY_CONNECTED", [first, weights], [out])
    last = model.tensor(HOSTILE + "3", (1, 4), "float32")
    model.operator("SOFTMAX", [out], [last], {"beta": 1.0})
    path = tmp_path / "hostile.tflite"
    path.write_bytes(model.build([first], [last]))
    return str(path)


def test_hostile_names_are_text(hostile: str) -> None:
    page = html(report(compiled(hostile, target="cortex-m0plus")))
    assert page.count("<script") == 2 and page.count("</script") == 2 and "alert(1)</" not in page
    assert "\x1b" not in page and "\u202e" not in page and "\x00" not in page
    assert "&lt;/script&gt;" in page and "{{ 7 * 7 }}" in page


def test_findings(hostile: str) -> None:
    found = {one["kind"]: one for one in report(compiled(hostile, target="cortex-m0plus"))["findings"]}
    assert found["float"]["layers"] and "no FPU" in found["float"]["title"] and "int8" in found["float"]["advice"]
    assert found["generic"]["weight"] == "warning" and "Quantise" in found["generic"]["advice"]
    assert "float" not in {one["kind"] for one in report(compiled(hostile))["findings"]}
    peak = next(one for one in report(bundle("plain"))["findings"] if one["kind"] == "peak")
    assert peak["layers"] == [bundle("plain").main.memory.peak.layer] and "--optimize ram" in peak["advice"]  # type: ignore[union-attr]
    assert next(one for one in report(bundle("rows"))["findings"] if one["kind"] == "peak")["advice"] != peak["advice"]
    generic = report(compiled(DIGITS, backend="generic"))["findings"]
    assert "generic" not in {one["kind"] for one in generic}, "there is no other kernel to name"


def test_a_dear_layer_and_much_moving() -> None:
    made = report(bundle("plain"))
    for number, each in enumerate(made["entries"][0]["layers"]):
        each["instructions"] = 1000 * (made["bundle"]["entries"][0]["layers"][number]["macs"] > 0)
    macs = [layer["macs"] for layer in made["bundle"]["entries"][0]["layers"]]
    made["entries"][0]["layers"][0]["instructions"] = 100 * macs[0]
    (dear,) = (one for one in findings(bundle("plain"), made) if one["kind"] == "dear")
    assert dear["layers"] == [0] and "takes 100.0 instructions" in dear["title"]
    still = macs.index(0)
    made["entries"][0]["layers"][still]["instructions"] = 300 * macs[0]
    (moves,) = (one for one in findings(bundle("plain"), made) if one["kind"] == "moves")
    assert moves["layers"][0] == still and moves["title"].startswith("74.9 % of")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.run(list(arguments)) == 0
    return capsys.readouterr().out


def test_the_commands_say_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    run(capsys, "bundle", DIGITS, "--cpu", "cortex-m4", "-o", str(tmp_path / "with"))
    run(capsys, "bundle", DIGITS, "--cpu", "cortex-m4", "--no-report", "-o", str(tmp_path / "without"))
    names = {path.name for path in (tmp_path / "with").iterdir()}
    assert names - {path.name for path in (tmp_path / "without").iterdir()} == {"digits.report.html"}
    made = json.loads(run(capsys, "report", DIGITS, "--cpu", "cortex-m4", "--html", str(tmp_path / "page.html"), "--json"))
    assert made["bundle"] == json.loads((tmp_path / "with" / "digits.json").read_text())
    assert (tmp_path / "page.html").read_bytes() == (tmp_path / "with" / "digits.report.html").read_bytes()
    said = run(capsys, "report", DIGITS, "--cpu", "cortex-m4")
    for layer in made["bundle"]["entries"][0]["layers"]:
        assert re.search(rf"{layer['kernel']} .*{layer['macs']} .*{layer['constant_bytes']}", said)
    for one in made["findings"]:
        assert one["title"] in said and one["advice"] in said
    for one in made["entries"][0]["buffers"]:
        assert one["row"] or one["why"] in said
    assert re.search(rf"step +{made['entries'][0]['needed_bytes'].index(768)} +layer +4 +768 .*peak", said)


def test_profile_puts_its_figures_in(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    counted = json.loads(run(capsys, "profile", DIGITS, "--cpu", "cortex-m4", "--json", "--report", str(tmp_path)))
    page = (tmp_path / "digits.report.html").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["digits.report.html"]
    for layer in counted["layers"][:-1]:
        line = rf'data-value="{layer["instructions"]}">{layer["instructions"]:,}</td>.*data-value="{layer["modelled_cycles"]}">'
        assert re.search(line, page), layer["symbol"]
    assert f"{counted['instructions']:,}" in page and "≈" not in page
