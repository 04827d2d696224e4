"""Cases written by hand, for types alone: operators that no oracle compares node by node, and forms that are not drawn.

Enters: nothing. Leaves: nets of one operator each, by its name. They are read, not run: numbers do not matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from tests.differential.net import Fill, Net, Node, Tensor


def one(
    op: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], options: Mapping | None = None, others: tuple[Net, ...] = ()
) -> Net:
    """A net of one node."""
    tensors, count = (*inputs, *outputs), len(inputs)
    free = tuple(n for n, tensor in enumerate(inputs) if tensor.data is None and not tensor.variable)
    made = tuple(range(count, len(tensors)))
    return Net(tensors, (Node(op, tuple(range(count)), made, options),), free, made, others)


def nothing(*values: Tensor) -> Net:
    """A sub-graph that gives back what it gets."""
    numbers = tuple(range(len(values)))
    return Net(values, (), numbers, numbers)


X, FLAG, PLACE = Tensor((3,), "int8", 0.05), Tensor((), "bool"), Tensor((), "resource")
CONTROL = (
    one("IF", (FLAG, X), (X,), {"then_subgraph_index": 1, "else_subgraph_index": 2}, (nothing(X), nothing(X))),
    one(
        "WHILE",
        (X, FLAG),
        (X, FLAG),
        {"cond_subgraph_index": 1, "body_subgraph_index": 2},
        (Net((X, FLAG), (), (0, 1), (1,)), nothing(X, FLAG)),
    ),
    one("STABLEHLO_COMPOSITE", (X,), (X,), {"decomposition_subgraph_index": 1, "name": "a"}, (nothing(X),)),
)
VARIABLES = Net(
    (PLACE, X, X),
    (
        Node("VAR_HANDLE", (), (0,), {"container": "", "shared_name": "held"}),
        Node("CALL_ONCE", (), (), {"init_subgraph_index": 1}),
        Node("ASSIGN_VARIABLE", (0, 1), (), {}),
        Node("READ_VARIABLE", (0,), (2,), {}),
    ),
    (1,),
    (2,),
    (
        Net(
            (PLACE, Tensor((3,), "int8", 0.05, data=Fill(0, 0, 1))),
            (Node("VAR_HANDLE", (), (0,), {"container": "", "shared_name": "held"}), Node("ASSIGN_VARIABLE", (0, 1), (), {})),
            (),
            (),
        ),
    ),
)


def words(*shape: int, dtype: str = "int16") -> Tensor:
    return Tensor(shape, dtype)


def table(count: int) -> Tensor:
    return Tensor((count,), "int16", data=Fill(0, 0, 1))


LONG = {"dtype": "uint32"}
SUBTRACTION = {
    "num_channels": 4,
    "clamping": 0,
    "min_signal_remaining": 1,
    "spectral_subtraction_bits": 14,
    **{f"{name}smoothing": 1 for name in ("", "one_minus_", "alternate_", "alternate_one_minus_")},
    "smoothing_bits": 1,
}
SIGNAL = (
    one("SignalWindow", (words(8), words(8)), (words(8),), {"shift": 1}),
    one("SignalFftAutoScale", (words(8),), (words(8), Tensor((), "int32")), {}),
    one("SignalEnergy", (words(8),), (words(4, **LONG),), {"start_index": 0, "end_index": 4}),
    *(
        one(op, (words(*sizes[0], dtype=dtype),), (words(*sizes[1], dtype=dtype),), {"T": number, "fft_length": 16})
        for dtype, number in (("int16", 7), ("int32", 2), ("float32", 0))
        for op, sizes in (("SignalRfft", ((16,), (18,))), ("SignalIrfft", ((18,), (16,))))
    ),
    one("SignalFilterBank", (words(8, **LONG), *(table(3),) * 5), (words(2, dtype="uint64"),), {"num_channels": 2}),
    one("SignalFilterBankSquareRoot", (words(4, dtype="uint64"), Tensor((), "int32")), (words(4, **LONG),), {}),
    one(
        "SignalFilterBankSpectralSubtraction",
        (words(4, **LONG),),
        (words(4, **LONG), words(4, **LONG)),
        SUBTRACTION,
    ),
    one("SignalPCAN", (words(4, **LONG), words(4, **LONG), table(125)), (words(4, **LONG),), {"snr_shift": 6}),
    one("SignalFilterBankLog", (words(4, **LONG),), (words(4),), {"input_correction_bits": 3, "output_scale": 64}),
    one("SignalFramer", (words(6),), (words(3, 4), FLAG), {"frame_size": 4, "frame_step": 2, "prefill": 0}),
    one(
        "SignalStacker",
        (words(3),),
        (words(9), FLAG),
        {"num_channels": 3, "stacker_left_context": 1, "stacker_right_context": 1, "stacker_step": 2},
    ),
    one("SignalDelay", (words(2, 5),), (words(2, 5),), {"delay_length": 3}),
    *(
        one("SignalOverlapAdd", (words(2, 8, dtype=dtype),), (words(6, dtype=dtype),), {"T": number, "frame_step": 3})
        for dtype, number in (("int16", 7), ("float32", 0))
    ),
)
SIZES = Tensor((2,), "int64", data=(1, 3))
SMALL, X2 = Fill(0, 0, 1), Tensor((1, 3), "int8", 0.05)
WINDOW = {"padding": "VALID", "stride_h": 1, "stride_w": 1, "fused_activation_function": "NONE"}
IMAGE, RESULT = Tensor((1, 2, 2, 2), "int8", 0.05), Tensor((1, 1, 1, 2), "int8", 0.05)
LARGE, AREA = Tensor((1, 3, 3, 2), "int8", 0.05), Tensor((4,), "int32", data=(1, 3, 3, 2))
WEIGHTED = (
    one("CONV_2D", (IMAGE, Tensor((2, 2, 2, 2), "int8", 0.01, data=SMALL)), (RESULT,), WINDOW),
    one("DEPTHWISE_CONV_2D", (IMAGE, Tensor((1, 2, 2, 2), "int8", 0.01, data=SMALL)), (RESULT,), {**WINDOW, "depth_multiplier": 1}),
    one("CONV_2D", (IMAGE, Tensor((2, 1, 1, 2), "int8", 0.01, data=SMALL)), (IMAGE,), WINDOW),
    one("TRANSPOSE_CONV", (AREA, Tensor((2, 2, 2, 2), "int8", 0.01, data=SMALL), IMAGE), (LARGE,), WINDOW),
    one("BATCH_MATMUL", (X2, Tensor((2, 3), "int8", 0.01, data=SMALL)), (Tensor((1, 2), "int8", 0.05),), {"adj_y": True}),
    one("FULLY_CONNECTED", (X2, Tensor((2, 3), "int8", 0.01, data=SMALL)), (Tensor((1, 2), "int8", 0.05),), {}),
)
DETECTION = {
    "max_detections": 5,
    "max_classes_per_detection": 1,
    "use_regular_nms": False,
    "nms_score_threshold": 0.3,
    "nms_iou_threshold": 0.5,
    "num_classes": 3,
    **{f"{name}_scale": 10.0 for name in "yxhw"},
}
BOXES = {
    "float32": (None, Tensor((12, 4), "float32", data=Fill(0, 1, 2))),
    "uint8": (0.004, Tensor((12, 4), "uint8", 0.004, data=Fill(0, 100, 200))),
    "int8": (0.004, Tensor((12, 4), "int8", 0.004, data=Fill(0, 50, 100))),
}
OTHERS = (
    *(
        one(
            "TFLite_Detection_PostProcess",
            (Tensor((1, 12, 4), dtype, scale), Tensor((1, 12, 4), dtype, scale), anchors),
            tuple(Tensor(shape, "float32") for shape in ((1, 5, 4), (1, 5), (1, 5), (1,))),
            DETECTION,
        )
        for dtype, (scale, anchors) in BOXES.items()
    ),
    one("QUANTIZE", (Tensor((3,), "float32"),), (X,), {}),
    one("QUANTIZE", (Tensor((3,), "int16", 0.01),), (Tensor((3,), "int32", 0.001),), {}),
    *(one("QUANTIZE", (Tensor((3,), "int32", 0.001),), (Tensor((3,), dtype, 0.05),), {}) for dtype in ("int8", "int16")),
    one("SOFTMAX", (X,), (Tensor((3,), "int16", 1 / 65536, -32768),), {"beta": 1.0}),
    one("REDUCE_PROD", (Tensor((3,), "uint8"), Tensor((1,), "int32", data=(0,))), (Tensor((1,), "uint8"),), {"keep_dims": True}),
    one(
        "SVDF",
        (
            Tensor((1, 3), "float32"),
            *(Tensor((2, size), "int8", 0.01, data=SMALL) for size in (3, 4)),
            Tensor((2,), "float32", data=SMALL),
            Tensor((1, 8), "float32", variable=True),
        ),
        (Tensor((1, 2), "float32"),),
        {"rank": 1},
    ),
    one("BROADCAST_ARGS", (SIZES, SIZES), (Tensor((2,), "int64"),), {}),
    one("DENSIFY", (Tensor((3,), "float32", data=SMALL),), (Tensor((3,), "float32"),), {}),
    one("DEQUANTIZE", (Tensor((3,), "int4", 0.05, data=SMALL),), (Tensor((3,), "float32"),), {}),
)


def _by_name() -> Mapping[str, tuple[Net, ...]]:
    found: dict[str, list[Net]] = defaultdict(list)
    for net in (*CONTROL, *SIGNAL, *WEIGHTED, *OTHERS):
        found[net.nodes[0].op].append(net)
    for op in ("VAR_HANDLE", "CALL_ONCE", "ASSIGN_VARIABLE", "READ_VARIABLE"):
        found[op].append(VARIABLES)
    return {op: tuple(nets) for op, nets in found.items()}


BY_HAND = _by_name()
