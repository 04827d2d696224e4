"""The page in a browser: nothing on its console, nothing from the network, figures those of NAME.json; pointing and sorting work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import aot
from aot.artefacts import describe_with_files as describe
from aot.report import html, report
from tests.cli.test_artefacts import make_bundle
from tests.report.browser import Page
from tests.report.test_report import DIGITS, HOSTILE
from tests.shared import model

FIGURES = "[...document.querySelectorAll('[data-path]')].map(one => [one.dataset.path, one.textContent])"
MOST_NBYTES = 1_000_000


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with Page() as made:
        yield made


def write(folder: Path, bundle: aot.Bundle) -> Path:
    path = folder / "page.html"
    path.write_text(html(report(bundle)), "utf-8")
    return path


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("digits"), aot.compile(DIGITS, target="cortex-m4"))


def value_at(described: dict[str, Any], path: str) -> Any:
    value: Any = described
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


@pytest.mark.parametrize("name", ["KWS", "IC"])
def test_real_models(page: Page, tmp_path: Path, name: str) -> None:
    bundle = aot.compile(model(name), target="cortex-m4")
    path = write(tmp_path, bundle)
    assert path.stat().st_size < MOST_NBYTES
    page.open(path)
    described = json.loads(json.dumps(describe(bundle)))
    figures = page.evaluate(FIGURES)
    assert len(figures) > 60
    for where, shown in figures:
        value = value_at(described, where)
        assert shown.replace(",", "") == ("×".join(map(str, value)) if isinstance(value, list) else str(value)), where
    shown = page.evaluate("[...document.querySelectorAll('.layers tbody tr')].map(row => row.cells.length)")
    assert len(shown) == len(bundle.main.layers) and len(set(shown)) == 1
    for width in (1280, 390):
        page.resize(width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not page.problems and not page.requests


def test_pointing_at_a_buffer(page: Page, digits: Path) -> None:
    page.open(digits)
    described = describe(aot.compile(DIGITS, target="cortex-m4"))["entries"][0]["buffers"]
    number = next(at for at, one in enumerate(described) if one["name"] == "t4")
    for bar in range(page.evaluate("document.querySelectorAll('.bar').length")):
        if page.evaluate(f"document.querySelectorAll('.bar')[{bar}].dataset.buffer") == str(number):
            page.point(".bar", bar)
            break
    text = page.evaluate("document.getElementById('tip').innerText")
    assert text.startswith(
        "depthwise_2\n512 bytes at offset 0, int8 1x8x8x8\nsteps 1 to 12; made by layer 1, read by layer 2\nover conv_0: 64 bytes"
    )
    page.point("h1")
    assert page.evaluate("document.getElementById('tip').hidden")
    page.evaluate("document.querySelector('.bar').focus()")
    first = page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.key("ArrowRight")
    assert first and page.evaluate("document.activeElement.getAttribute('aria-label')") != first
    page.point(".curve")
    assert page.evaluate("document.getElementById('tip').innerText").startswith("step ")
    page.point(".box.layer", 2)
    assert "computes node" in page.evaluate("document.getElementById('tip').innerText")
    assert page.evaluate("document.querySelectorAll('.box.node.lit').length") >= 1
    assert not page.problems


def test_columns_sort_by_mouse_and_keys(page: Page, digits: Path) -> None:
    page.open(digits)
    column = "[...document.querySelectorAll('.layers tbody tr')].map(row => Number(row.cells[4].dataset.value))"
    before = page.evaluate(column)
    button = "document.querySelectorAll('.layers thead th')[4].querySelector('button')"
    page.evaluate(f"{button}.click()")
    assert page.evaluate(column) == sorted(before, reverse=True) != before
    page.evaluate(f"{button}.focus()")
    page.key("Enter")
    assert page.evaluate(column) == sorted(before)
    assert page.evaluate("document.querySelectorAll('.layers thead th')[4].getAttribute('aria-sort')") == "ascending"
    assert not page.problems


def test_zoom(page: Page, digits: Path) -> None:
    page.open(digits)
    for zoom in range(3):
        width = f"document.getElementById(document.querySelectorAll('.zoom')[{zoom}].dataset.of).querySelector('svg').getBoundingClientRect().width"
        before = page.evaluate(width)
        page.evaluate(f"document.querySelectorAll('.zoom')[{zoom}].querySelectorAll('button')[1].click()")
        assert page.evaluate(width) == pytest.approx(1.5 * before, rel=0.02)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_text_stands_out_in_light_and_dark(page: Page, digits: Path) -> None:
    """At least 4.5 to 1, as WCAG asks."""
    script = """(() => {
      const bright = (text) => { const [r, g, b] = text.match(/[0-9.]+/g).map(Number)
        .map(c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const ratio = (one, other) => { const [a, b] = [bright(one), bright(other)].sort((x, y) => y - x); return (a + 0.05) / (b + 0.05); };
      const probe = document.createElement('i'); document.body.append(probe);
      const colour = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
      const pairs = [['ink','paper'],['soft','paper'],['ink','panel'],['soft','panel'],['accent','paper'],['warn','warn-paper'],['ink','warn-paper'],
        ['soft','warn-paper'],
        ['bar-ink','scratch'], ...[0,1,2,3,4,5,6,7].map(n => ['bar-ink', `c${n}`])];
      return pairs.map(([a, b]) => [a, b, ratio(colour(a), colour(b))]).filter(one => one[2] < 4.5); })()"""
    for dark in (False, True):
        page.open(digits, dark=dark)
        assert page.evaluate(script) == []


def test_hostile_names_do_nothing(page: Page, tmp_path: Path) -> None:
    """And a bundle whose plan is not known has a page, too."""
    page.open(write(tmp_path, replace(make_bundle(label=HOSTILE), object=b"")))
    assert page.evaluate("document.querySelectorAll('script').length") == 2
    assert "<script>alert(1)</script>" in page.evaluate("document.body.innerText")
    assert not page.problems and not page.requests
