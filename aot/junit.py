"""JUnit XML of a verification, for the test report of a CI.

Enters: `Places`, layers. Leaves: the file's text. Invariant: a test suite for each place, a test case for each sample and each layer; a place that
is missing is a suite whose one case is skipped, with the reason; a verification that could not end is an error, never no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from aot.verify import LayerDifference, Places, Verdict


def junit(
    name: str,
    places: Places,
    samples: Sequence[str],
    layers: Sequence[LayerDifference],
    properties: Mapping[str, str],
    culprit: str = "",
) -> bytes:
    """name: the bundle's. samples: their names. properties: what else is to be said of the bundle. culprit: which layer is to blame."""
    suites = Element("testsuites", name=f"aot verify {name}")
    for verdict in places.verdicts:
        suite = _suite(suites, f"{name} on {verdict.last.where}", properties)
        _samples(suite, name, verdict, places, samples, culprit)
    for place, reason in places.missing:
        suite = _suite(suites, f"{name} on {place}", properties)
        SubElement(_case(suite, f"{name}.{place}", "the place", 0.0), "skipped", message=_text(reason))
    if layers:
        where = places.verdicts[0].last.where
        suite = _suite(suites, f"{name}, layer by layer, on {where}", properties)
        for each in layers:
            case = _case(suite, f"{name}.layers", str(each), 0.0)
            if each.differing:
                text = f"{each.differing} of {each.elements} elements differ, by {each.largest:g} at most"
                SubElement(case, "failure", message=text, type="difference").text = text
    return _text_of(suites)


def junit_error(name: str, properties: Mapping[str, str], text: str) -> bytes:
    """The report of a verification that did not end: the code accessed memory outside its buffers, say."""
    suites = Element("testsuites", name=f"aot verify {name}")
    case = _case(_suite(suites, name, properties), name, "the verification", 0.0)
    SubElement(case, "error", message=_text(text), type="InternalError").text = _text(text)
    return _text_of(suites)


def _text_of(suites: Element) -> bytes:
    for suite in suites:
        _count(suite, [suite])
    _count(suites, list(suites))
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, "utf-8", xml_declaration=True) + b"\n"


def _samples(suite: Element, name: str, verdict: Verdict, places: Places, samples: Sequence[str], culprit: str) -> None:
    """A case for each sample of a place."""
    where = verdict.last.where
    first = places.verdicts[0].last.where
    apart = {sample: output for place, sample, output in places.apart if place == where}
    for number, (sample, seconds) in enumerate(zip(samples, verdict.seconds, strict=True)):
        case = _case(suite, f"{name}.{where}", sample, seconds)
        lines = [str(difference) for at, difference in verdict.mismatches if at == number]
        if number in apart:
            lines.append(f"output {apart[number]} has other bytes than on {first}")
        if lines:
            SubElement(case, "failure", message=_text(lines[0]), type="difference").text = _text(
                "\n".join([*lines, culprit]).strip()
            )


def _suite(suites: Element, name: str, properties: Mapping[str, str]) -> Element:
    suite = SubElement(suites, "testsuite", name=_text(name))
    held = SubElement(suite, "properties")
    for key, value in properties.items():
        SubElement(held, "property", name=key, value=_text(value))
    return suite


def _case(suite: Element, classname: str, name: str, seconds: float) -> Element:
    return SubElement(suite, "testcase", classname=_text(classname), name=_text(name), time=f"{seconds:.3f}")


def _count(element: Element, suites: Sequence[Element]) -> None:
    """How many cases there are, and how they ended."""
    cases = [case for suite in suites for case in suite.iter("testcase")]
    element.set("tests", str(len(cases)))
    element.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    element.set("errors", str(sum(case.find("error") is not None for case in cases)))
    if element.tag == "testsuite":
        element.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
    element.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.3f}")


def _text(text: str) -> str:
    """Untrusted text without the characters that XML does not have."""
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)
