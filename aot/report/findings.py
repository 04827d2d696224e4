# pyright: basic
"""What could be better about a bundle, and what to do about it.

Enters: a Bundle, and its report so far. Leaves: findings: kind, weight (`warning` or `note`), title, text, advice, and where (entry, layers).
Invariant: each follows from figures that the report has; nothing is said of what its reader can't change.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aot.bundle import Bundle, Entry
    from aot.lower.memory import Held

_DEAR, _DEAR_SHARE = 4.0, 0.03
"""A layer is dear whose instructions for a multiply-accumulate are so many times the median, if it is at least such a part of the whole."""
_MOVES_SHARE = 0.15
"""Of all instructions, in layers that multiply nothing."""
_GENERIC_SHARE = 0.05
"""A generic kernel that takes more than this of all instructions is a warning, else a note."""
_STACK_NBYTES = 512
_GAP = 0.05


def findings(bundle: Bundle, report: dict[str, Any]) -> list[dict[str, Any]]:
    """All findings, warnings first."""
    found = []
    for number, entry in enumerate(bundle.entries):
        layers = report["entries"][number]["layers"]
        counts = [_instructions(layer) for layer in layers]
        for one in (
            *_generic(bundle, entry, layers, counts),
            *_floats(bundle, entry, layers),
            *_dear(entry, counts),
            *_moves(entry, counts),
            *_peak(bundle, entry),
            *_gap(entry),
            *_stack(entry),
        ):
            found.append({**one, "entry": number})
    return sorted(found, key=lambda one: one["weight"] != "warning")


def _finding(kind: str, weight: str, title: str, text: str, advice: str, layers: Sequence[int] = ()) -> dict[str, Any]:
    return {"kind": kind, "weight": weight, "title": title, "text": text, "advice": advice, "layers": list(layers)}


def _instructions(layer: dict[str, Any]) -> int:
    """Counted, or else expected."""
    if layer["instructions"] is not None:
        return layer["instructions"]
    return 0 if layer["estimate"] is None else layer["estimate"]["instructions"]


def _generic(bundle: Bundle, entry: Entry, described: Sequence[dict[str, Any]], counts: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Layers that none of the back end's own kernels took: those with the same reason together, those that hardly matter all together."""
    if bundle.backend == "generic":
        return
    reasons: dict[str, list[int]] = {}
    for number, layer in enumerate(entry.layers):
        if layer.kernel.startswith("generic"):
            reasons.setdefault(_reason(layer.declined), []).append(number)
    small: list[int] = []
    for reason, layers in reasons.items():
        share = _share(layers, counts)
        if share < _GENERIC_SHARE:
            small += layers
            continue
        yield _finding(
            "generic",
            "warning",
            f"No kernel of {bundle.backend} computes {_numbers(layers)}",
            f"{_operators(entry, layers)}: generic code, which takes {_percent(share)} of all instructions. {reason}",
            _generic_advice([dtype for number in layers for dtype in described[number]["dtypes"]]),
            layers,
        )
    if small:
        yield _finding(
            "generic",
            "note",
            f"Generic code computes {_numbers(sorted(small))}",
            f"{_operators(entry, sorted(small))}: {_percent(_share(small, counts))} of all instructions.",
            "Nothing: it is too little to matter. `--explain` says why no kernel took them.",
            sorted(small),
        )


def _generic_advice(dtypes: Sequence[str]) -> str:
    """What to do about layers that read and write these."""
    if any("float" in dtype for dtype in dtypes):
        return "Quantise the model to int8 with per-channel weights: the kernels are for integers."
    return (
        "Where the sentence names something that the model can do without (a type, a stride, a size), change it; else an operator that"
        " has a kernel may do as well. docs/operators.md lists what each takes."
    )


def _operators(entry: Entry, layers: Sequence[int]) -> str:
    return (
        ", ".join(dict.fromkeys(name for number in layers for name in entry.layers[number].operators)) or "no operator of the model"
    )


def _reason(declined: Sequence[tuple[str, str]]) -> str:
    """What kernels said: those that are for another core last, and not more than three."""
    said = list(dict.fromkeys(f"{kernel}: {why}" for kernel, why in declined if " has no " not in why))
    rest = f"; and {len(said) - 3} more" if len(said) > 3 else ""
    return "Kernels that declined: " + "; ".join(said[:3]) + rest + "." if said else "No kernel is for such a layer."


def _floats(bundle: Bundle, entry: Entry, layers: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    target = bundle.target
    if "fpu" in target.has or not (target.cpu.startswith("cortex-m") or "riscv" in target.triple or "xtensa" in target.triple):
        return
    found = [number for number, layer in enumerate(layers) if any("float" in dtype for dtype in layer["dtypes"])]
    if found:
        yield _finding(
            "float",
            "warning",
            f"Float arithmetic on {target.name}, which has no FPU",
            f"{_numbers(found)} of {len(layers)} compute with floats, each operation of which is a call of some hundred instructions.",
            "Quantise the model to int8 (inputs and outputs, too), or choose a core with an FPU.",
            found,
        )


def _dear(entry: Entry, counts: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Layers whose instructions for a multiply-accumulate are far above the median's."""
    ratios = {number: counts[number] / layer.macs for number, layer in enumerate(entry.layers) if layer.macs and counts[number]}
    if len(ratios) < 3:
        return
    usual = median(ratios.values())
    dear = [number for number, ratio in ratios.items() if ratio > _DEAR * usual and _share([number], counts) >= _DEAR_SHARE]
    for number in dear:
        layer = entry.layers[number]
        yield _finding(
            "dear",
            "warning",
            f"Layer {number} ({'+'.join(layer.operators)}) takes {ratios[number]:.1f} instructions for each multiply-accumulate",
            f"The median of this model's layers is {usual:.1f}; this one takes {_percent(_share([number], counts))} of all instructions in"
            f" `{layer.kernel}`.",
            "Few channels, small images and depthwise layers cost most for each multiply-accumulate: more channels in fewer such layers"
            " cost less. `--explain` shows its variants; `--optimize speed` may take a larger one.",
            [number],
        )


def _moves(entry: Entry, counts: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Layers that multiply nothing, if they take much of the whole."""
    found = [number for number, layer in enumerate(entry.layers) if not layer.macs and counts[number]]
    share = _share(found, counts)
    if share < _MOVES_SHARE or not any(layer.macs for layer in entry.layers):
        return
    most = sorted(found, key=lambda number: -counts[number])[:5]
    names = ", ".join(f"{number} ({'+'.join(entry.layers[number].operators) or entry.layers[number].kernel})" for number in most)
    yield _finding(
        "moves",
        "warning",
        f"{_percent(share)} of all instructions move data or compute elementwise",
        f"Of {len(found)} such layers those that take most are {names}.",
        "Activations that are clamps (RELU, RELU6) cost nothing behind a convolution; transposes, resizes and requantisations between layers"
        " of different scales can often be left out when the model is converted.",
        most,
    )


def _peak(bundle: Bundle, entry: Entry) -> Iterator[dict[str, Any]]:
    """What sets the peak."""
    memory = entry.memory
    if memory is None or memory.peak is None or not memory.peak.held:
        return
    peak = memory.peak
    layer, largest = entry.layers[peak.layer], peak.held[0]
    held = ", ".join(f"{one.label.split(';')[0]} {one.nbytes:,}{_rows(one)}" for one in peak.held[:3])
    scratch = largest.label == "scratch"
    if bundle.optimize != "ram" and memory.layers_by_rows < len(entry.layers):
        advice = "`--optimize ram` takes the smallest workspace; `aot inspect --memory` shows what that costs."
    elif scratch:
        advice = "`--optimize size` and `--max-workspace` take kernels with less scratch, if there are any."
    else:
        advice = "It is the smallest workspace there is for this model: a smaller image, fewer channels or a stride in this layer would need less."
    yield _finding(
        "peak",
        "note",
        f"{'Scratch' if scratch else largest.label.split(';')[0]} sets the peak, in layer {peak.layer}{peak.rows_text}",
        f"While layer {peak.layer} ({'+'.join(layer.operators) or layer.kernel}) computes, {peak.nbytes:,} bytes are needed at once: {held}.",
        advice,
        [peak.layer],
    )


def _rows(one: Held) -> str:
    return f" ({one.rows} of {one.of_rows} rows)" if one.rows < one.of_rows else ""


def _gap(entry: Entry) -> Iterator[dict[str, Any]]:
    memory = entry.memory
    if memory is None or memory.regions or memory.gap <= _GAP:
        return
    yield _finding(
        "gap",
        "note",
        f"The workspace is {_percent(memory.gap)} above its lower bound",
        f"{memory.workspace_nbytes:,} bytes, where no step needs more than {memory.lower_bound_nbytes:,}: buffers leave gaps between them.",
        "`--optimize ram` searches longer, and lets layers run by rows.",
    )


def _stack(entry: Entry) -> Iterator[dict[str, Any]]:
    if entry.stack_nbytes is None or entry.stack_nbytes <= _STACK_NBYTES:
        return
    yield _finding(
        "stack",
        "warning",
        f"{entry.symbol} may take {entry.stack_nbytes} bytes of stack",
        f"That is more than {_STACK_NBYTES} bytes, and comes on top of what the caller and interrupts take.",
        "Make the task's stack large enough; `--max-stack` refuses code that takes more, another `--optimize` may take less.",
    )


def _share(layers: Sequence[int], counts: Sequence[int]) -> float:
    whole = sum(counts)
    return sum(counts[number] for number in layers) / whole if whole else 0.0


def _percent(share: float) -> str:
    """`12.3 %`; `less than 0.1 %`."""
    return f"{100 * share:.1f} %" if share >= 0.0005 else "less than 0.1 %"


def _numbers(layers: Sequence[int]) -> str:
    """`layer 3`, `layers 3, 5 and 7`, `layers 3, 5, 7, 8, 9 and 20 more`."""
    if len(layers) == 1:
        return f"layer {layers[0]}"
    if len(layers) > 6:
        return f"layers {', '.join(map(str, layers[:5]))} and {len(layers) - 5} more"
    return f"layers {', '.join(map(str, layers[:-1]))} and {layers[-1]}"
