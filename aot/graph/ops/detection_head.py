"""What a TFLite_Detection_PostProcess node says: sizes and options, each checked.

Enters: the FlexBuffer map of the options, and a site. Leaves: frozen attributes, and a `Head`, or `site.error`.
Invariant: reading never fails; an option that is absent or no number counts as 0, as in TFLite. What a `Head` holds is inside the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from aot.graph.ir import DType, Site, Value
from aot.graph.ops import checks

BYTES = (DType.UINT8, DType.INT8)
MAX_BOXES, MAX_CLASSES, MAX_SCORES, MAX_SLOTS = 1 << 16, 1 << 12, 1 << 24, 1 << 12
"""The most anchors, classes, class predictions, and slots for detections (each turn of the suppression's loop fills one)."""
DETECTIONS_PER_CLASS = 100
"""Where the options do not say."""
_NAMES = (
    *("max_detections", "max_classes_per_detection", "detections_per_class", "use_regular_nms", "num_classes"),
    *("nms_score_threshold", "nms_iou_threshold", "y_scale", "x_scale", "h_scale", "w_scale"),
)


@dataclass(frozen=True)
class Detection:
    """Options that are numbers, by name, sorted."""

    numbers: tuple[tuple[str, float], ...]

    def __str__(self) -> str:
        return ", ".join(f"{name}={number:.9g}" for name, number in self.numbers)

    def get(self, name: str, default: float = 0) -> float:
        return dict(self.numbers).get(name, default)


def read_detection(options: Mapping[str, object] | None) -> Detection:
    found = ((name, (options or {}).get(name)) for name in sorted(_NAMES))
    return Detection(tuple((name, float(value)) for name, value in found if isinstance(value, int | float)))


@dataclass(frozen=True)
class Head:
    """boxes: how many. classes: without the background, which is class prediction 0 if `background` is 1.

    rows: classes that suppress by themselves (fast: 1, which is each box's best). limit: the most detections; per_row: of one row.
    slots: of the outputs. shown: classes of each detection, `stride` slots apart. scales: of y, x, h, w. Thresholds are float32.
    """

    boxes: int
    classes: int
    background: int
    is_regular: bool
    slots: int
    stride: int
    shown: int
    limit: int
    per_row: int
    score_threshold: float
    overlap_threshold: float
    scales: tuple[float, ...]

    @property
    def rows(self) -> int:
        return self.classes if self.is_regular else 1

    @property
    def predictions(self) -> int:
        """Class predictions of one box."""
        return self.classes + self.background


def head(site: Site) -> Head:
    """The node's sizes and options."""
    boxes, (classes, background) = _boxes(site), _classes(site)
    is_regular = bool(_options(site).get("use_regular_nms"))
    most = _whole(site, "max_detections", 1, MAX_SLOTS)
    each = _whole(site, "max_classes_per_detection", 1, MAX_SLOTS)
    per_row = _whole(site, "detections_per_class", 1, default=DETECTIONS_PER_CLASS) if is_regular else most
    if most * each > MAX_SLOTS:
        raise site.error(f"its outputs would have {most} x {each} detections, more than {MAX_SLOTS}")
    shown = 1 if is_regular else min(each, classes)
    limit = min(most, boxes * classes if is_regular else boxes)
    overlap = _real(site, "nms_iou_threshold")
    if not 0 < overlap <= 1:
        raise site.error(f"its option nms_iou_threshold is {overlap:.9g}, not above 0 and at most 1")
    return Head(
        boxes,
        classes,
        background,
        is_regular,
        most * each,
        1 if shown == 1 else each,
        shown,
        limit,
        min(per_row, limit),
        _real(site, "nms_score_threshold"),
        overlap,
        tuple(_scale(site, f"{name}_scale") for name in "yxhw"),
    )


def _boxes(site: Site) -> int:
    checks.require_counts(site, (3,), 4)
    encodings, scores, anchors = (site.input(position) for position in range(3))
    checks.require_rank(site, encodings, 3)
    batch, count, width = encodings.shape
    if batch != 1 or width < 4 or not 1 <= count <= MAX_BOXES:
        shape = checks.shape_text(encodings.shape)
        raise site.error(f"{checks.describe(encodings)} is {shape}, not 1 x (1 to {MAX_BOXES} boxes) x (4 or more)")
    checks.require_rank(site, scores, 3)
    if scores.shape[:2] != (1, count):
        raise site.error(f"{checks.describe(scores)} is {checks.shape_text(scores.shape)}, but there are {count} boxes")
    if anchors.shape != (count, 4):
        raise site.error(f"{checks.describe(anchors)} is {checks.shape_text(anchors.shape)}, not {count}x4")
    return count


def _classes(site: Site) -> tuple[int, int]:
    """How many classes, and whether there is a background."""
    scores = site.input(1)
    classes, found = _whole(site, "num_classes", 1, MAX_CLASSES), scores.shape[2]
    if not 0 <= found - classes <= 1:
        raise site.error(
            f"{checks.describe(scores)} has {found} classes; its option num_classes is {classes}, or one less than that"
        )
    if scores.size > MAX_SCORES:
        raise site.error(f"{checks.describe(scores)} has {scores.size} elements, more than {MAX_SCORES}")
    return classes, found - classes


def check_types(site: Site) -> None:
    encodings, scores, anchors = (site.input(position) for position in range(3))
    checks.require_same_dtype(site, anchors, encodings)
    for value in (encodings, scores, anchors):
        checks.require_dtype(site, value, DType.FLOAT32, *BYTES)
        if value.dtype in BYTES:
            checks.per_tensor(site, value)
    for value in site.outputs:
        checks.require_dtype(site, value, DType.FLOAT32)


def dequantised(value: Value, data: np.ndarray) -> np.ndarray:
    """The numbers that a value's elements stand for, in float32."""
    if value.quantisation is None or value.dtype not in BYTES:
        return data
    zero_point, scale = np.float32(value.quantisation.zero_point), np.float32(value.quantisation.scale)
    with np.errstate(over="ignore"):
        return (data.astype(np.float32) - zero_point) * scale


def _options(site: Site) -> Detection:
    return site.node.attributes if isinstance(site.node.attributes, Detection) else Detection(())


def _whole(site: Site, name: str, low: int, high: int = DType.INT32.limits[1], default: int = 0) -> int:
    found = _options(site).get(name, default)
    if not (low <= found <= high and found == math.floor(found)):
        raise site.error(f"its option {name} is {found:.9g}, not a whole number from {low} to {high}")
    return int(found)


def _real(site: Site, name: str) -> float:
    """An option as float32."""
    with np.errstate(over="ignore"):
        return float(np.float32(_options(site).get(name)))


def _scale(site: Site, name: str) -> float:
    found = _real(site, name)
    if not math.isfinite(found) or found == 0:
        raise site.error(f"its option {name} is {found:.9g}, by which no box can be divided")
    return found
