"""TFLite_Detection_PostProcess: boxes decoded by anchors, then non-max suppression, fast (each box by its best class) or regular
(each class by itself). float32, uint8 and int8; boxes and anchors are of one type, class predictions of any.

Classes, counts and the order are exact (equal scores: by class, then by box); a NaN score is below every threshold. Decoded boxes are
within 1 ulp, and all but one in a million equal. What follows the last detection is 0. Sources: tflite-micro,
tensorflow/lite/micro/kernels/detection_postprocess.cc, which takes float32 only; LiteRT, tflite/kernels/detection_postprocess.cc.

Several classes for each detection: slots and their count as in LiteRT, since TFLite Micro writes beyond its outputs; classes of equal
score by number, as there. Both fail at run time if a box is inside out (TFLite Micro: or empty); here it takes part like any other.
"""

from __future__ import annotations

import numpy as np

from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Operator
from aot.graph.ops.detection_head import Head, check_types, dequantised, head, read_detection
from aot.graph.ops.detection_lowering import NEVER, lower_detection
from aot.graph.support import alone, litert, micro


def _infer(site: Site) -> tuple[Shape, ...]:
    slots = head(site).slots
    return (1, slots, 4), (1, slots), (1, slots), (1,)


def _compute(site: Site, encodings: np.ndarray, scores: np.ndarray, anchors: np.ndarray) -> tuple[np.ndarray, ...]:
    what = head(site)
    encodings, scores, anchors = (
        dequantised(value, data) for value, data in zip(site.inputs, (encodings, scores, anchors)) if value
    )
    with np.errstate(all="ignore"):
        corners = _decoded(what, encodings[0].astype(np.float64), anchors.astype(np.float64))
        found = _suppressed(what, corners, _keys(what, scores[0, :, what.background :]))
    return _outputs(what, corners, scores[0, :, what.background :], found)


def _decoded(what: Head, encodings: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    """Corners (ymin, xmin, ymax, xmax) of each box, float32; in float64 up to the centre and half the size."""
    scales = np.array(what.scales)
    centre = (encodings[:, :2] / scales[:2] * anchors[:, 2:] + anchors[:, :2]).astype(np.float32)
    half = (0.5 * np.exp(encodings[:, 2:4] / scales[2:]) * anchors[:, 2:]).astype(np.float32)
    return np.concatenate([centre - half, centre + half], 1)


def _keys(what: Head, scores: np.ndarray) -> np.ndarray:
    """int32 (rows, boxes): integers in the order of the scores, NEVER below the threshold."""
    rows = scores.T if what.is_regular else _best(scores)[None]
    return np.where(rows >= np.float32(what.score_threshold), _ordered(rows), NEVER)


def _best(scores: np.ndarray) -> np.ndarray:
    """The largest score of each box; a NaN in first place stays, elsewhere it never wins."""
    best = scores[:, 0]
    for column in scores.T[1:]:
        best = np.where(best < column, column, best)
    return best


def _ordered(scores: np.ndarray) -> np.ndarray:
    """An int32 in the same order, the smallest for a NaN."""
    bits = np.ascontiguousarray(scores + np.float32(0)).view(np.int32)  # -0 becomes 0
    return np.where(np.isnan(scores), NEVER, np.where(bits < 0, bits ^ DType.INT32.limits[1], bits))


def _suppressed(what: Head, corners: np.ndarray, keys: np.ndarray) -> list[tuple[int, int]]:
    """(row, box) of each detection, best first. Taking the best over all rows gives what merging the rows' own lists would."""
    best, counts = keys.max(1), np.zeros(what.rows, int)
    found: list[tuple[int, int]] = []
    while len(found) < what.limit and best.max() > NEVER:
        row = int(best.argmax())
        box = int(keys[row].argmax())
        found.append((row, box))
        counts[row] += 1
        keys[row, _overlap(corners, box) > np.float32(what.overlap_threshold)] = NEVER
        keys[row, box] = NEVER
        best[row] = keys[row].max() if counts[row] < what.per_row else NEVER
    return found


def _overlap(corners: np.ndarray, box: int) -> np.ndarray:
    """Intersection over union of a box with each; 0 where one of them has no area."""
    ours, theirs = corners[box], corners.T
    area, areas = ((c[2] - c[0]) * (c[3] - c[1]) for c in (ours, theirs))
    low: list[np.ndarray] = [np.where(ours[side] < theirs[side], theirs[side], ours[side]) for side in (0, 1)]
    high: list[np.ndarray] = [np.where(theirs[side] < ours[side], theirs[side], ours[side]) for side in (2, 3)]
    height, width = (np.where(b - a < 0, np.float32(0), b - a) for a, b in zip(low, high))
    common = height * width
    return np.where((area <= 0) | (areas <= 0), np.float32(0), common / (area + areas - common))


def _outputs(what: Head, corners: np.ndarray, scores: np.ndarray, found: list[tuple[int, int]]) -> tuple[np.ndarray, ...]:
    boxes, classes, values = (np.zeros(shape, np.float32) for shape in ((1, what.slots, 4), (1, what.slots), (1, what.slots)))
    for turn, (row, box) in enumerate(found):
        shown = (
            np.array([row]) if what.is_regular else np.argsort(-_ordered(scores[box]).astype(np.int64), kind="stable")[: what.shown]
        )
        place = slice(turn * what.stride, turn * what.stride + what.shown)
        boxes[0, place], classes[0, place], values[0, place] = corners[box], shown, scores[box, shown]
    return boxes, classes, values, np.array([len(found)], np.float32)


OPERATORS = (
    Operator("TFLite_Detection_PostProcess", "CUSTOM", read_detection, _infer, check_types, _compute, lower_detection).supports(
        micro("float32", "one class for each detection, or regular suppression"),
        litert("uint8", "also float32 with several classes for each detection"),
        alone("int8", "as uint8"),
        notes="Boxes within 1 ulp; slots after the last detection are 0, where TFLite Micro leaves what was there.",
    ),
)
