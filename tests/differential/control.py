"""Cases of operators with further subgraphs or with state: IF, WHILE, SVDF, LSTM."""

from __future__ import annotations

from tests.differential.case import SUM, cases
from tests.differential.grower import Grower
from tests.differential.net import Fill, Net, Node, Tensor


def branch(
    g: Grower, x: Tensor, before: tuple[Tensor, ...] = (), after: tuple[Node, ...] = (), results: tuple[int, ...] = ()
) -> Net:
    """A subgraph with inputs (*before, x) and outputs (*results, a value like x): nothing, a constant, or one or two operators."""
    tensors, start = [*before, x], len(before)
    kind = g.pick("pair", "clamp", "nothing", "both")
    nodes, last = [], start
    if kind in ("pair", "both"):
        tensors += [Tensor(x.shape, x.dtype, x.scale, x.zero_point, data=Fill(g.whole(0, 99))), x]
        pair = (last, len(tensors) - 2) if g.coin() else (last, last)
        nodes.append(Node(g.pick("ADD", "MUL", "SUB"), pair, (len(tensors) - 1,), {"fused_activation_function": "NONE"}))
        last = len(tensors) - 1
    if kind in ("clamp", "both"):
        tensors.append(x)
        nodes.append(Node("RELU", (last,), (len(tensors) - 1,)))
        last = len(tensors) - 1
    inputs = tuple(range(start + 1))
    return Net(tuple(tensors), (*after, *nodes), inputs, (*results, last))


def plain(g: Grower, number: int) -> Tensor:
    """A value's dtype, shape and quantisation."""
    return g.like(number)


def condition(g: Grower, op: str) -> None:
    """IF: the condition is computed."""
    flag = g.value("bool", shape=(), fill=Fill(g.whole(0, 9)))
    x = g.value(("int8", "float32"))
    first = 1 + len(g.others)
    g.others += [branch(g, plain(g, x)), branch(g, plain(g, x))]
    g.node(op, [flag, x], plain(g, x), {"then_subgraph_index": first, "else_subgraph_index": first + 1})


def loop(g: Grower, op: str) -> None:
    """WHILE a counter is less than a constant: 0 to 5 turns."""
    counter, flag = Tensor((), "int32"), Tensor((), "bool")
    i = g.value("int32", shape=(), fill=Fill(g.whole(0, 99), 0, 5))
    x = g.value(("int8", "float32"))
    spec = plain(g, x)
    first = 1 + len(g.others)
    limit, one = Tensor((), "int32", data=g.whole(0, 5)), Tensor((), "int32", data=1)
    test = Net((counter, spec, limit, flag), (Node("LESS", (0, 2), (3,), {}),), (0, 1), (3,))
    # the body's tensors: counter, x, then what `branch` adds; the counter's own arithmetic comes last
    body = branch(g, spec, (counter,))
    count = len(body.tensors)
    step = Node("ADD", (0, count), (count + 1,), {"fused_activation_function": "NONE"})
    body = Net((*body.tensors, one, counter), (*body.nodes, step), (0, 1), (count + 1, body.outputs[-1]))
    g.others += [test, body]
    g.node(op, [i, x], [counter, spec], {"cond_subgraph_index": first, "body_subgraph_index": first + 1})


def svdf(g: Grower, op: str) -> None:
    """A state of int8 only with a bias: TFLite Micro does not run it without, and LiteRT takes every state as int16."""
    dtype = g.pick("int8", "float32")
    rank, units, memory = g.pick(1, 2), g.whole(1, 4), g.whole(1, 5)
    x = g.value(dtype, rank=2)
    batch, depth = g[x].shape
    filters, seed = rank * units, g.whole(0, 99)
    absent = g.seldom()
    state_type = {"int8": g.pick("int16", "int8") if not absent else "int16", "float32": "float32"}[dtype]
    quantised = dtype == "int8"
    feature = g.add(Tensor((filters, depth), dtype, 0.01 if quantised else None, data=_rule(seed, quantised)))
    time = g.add(Tensor((filters, memory), state_type, 0.002 if quantised else None, data=_rule(seed + 1, quantised)))
    offsets = Tensor((units,), "int32" if quantised else "float32", 1e-5 if quantised else None, data=_rule(seed + 2, quantised))
    third = -1 if absent else g.add(offsets)
    state = g.add(Tensor((batch, memory * filters), state_type, 0.005 if quantised else None, variable=True))
    made = g.output((batch, units), dtype)
    g.node(op, [x, feature, time, third, state], made, {"rank": rank, "fused_activation_function": g.pick("NONE", "RELU")})


def _rule(seed: int, quantised: bool) -> Fill:
    return Fill(seed, -127, 127) if quantised else Fill(seed)


def lstm(g: Grower, op: str) -> None:
    """No peepholes, projection or layer norm, which TFLite Micro lacks; input gate present."""
    dtype = g.pick("int8", "float32", "int16")
    x = g.value(dtype, rank=3, most=60)
    major = g.coin()
    steps, batch, depth = g[x].shape if major else (g[x].shape[1], g[x].shape[0], g[x].shape[2])
    units, quantised, seed = g.whole(1, 5), dtype != "float32", g.whole(0, 99)
    kind, scale = ("int8", 0.01) if quantised else ("float32", None)
    to_input = [g.add(Tensor((units, depth), kind, scale, data=_rule(seed + n, quantised))) for n in range(4)]
    to_state = [g.add(Tensor((units, units), kind, scale, data=_rule(seed + 4 + n, quantised))) for n in range(4)]
    wide = {"int8": "int32", "int16": "int64", "float32": "float32"}[dtype]
    biases = [
        g.add(Tensor((units,), wide, 0.01 * g.scale(x) if quantised else None, data=_rule(seed + 8 + n, quantised)))
        for n in range(4)
    ]
    hidden_q = {"int8": (1 / 128, g.pick(0, -5, 12)), "int16": (1 / 32768, 0), "float32": (None, 0)}[dtype]
    hidden = g.add(Tensor((batch, units), dtype, *hidden_q, variable=True))
    cell = g.add(Tensor((batch, units), "int16" if quantised else "float32", 1 / 2048 if quantised else None, variable=True))
    inputs = [x, *to_input, *to_state, -1, -1, -1, *biases, -1, -1, hidden, cell, -1, -1, -1, -1]
    shape = (steps, batch, units) if major else (batch, steps, units)
    options = {"fused_activation_function": "TANH", "cell_clip": g.pick(0.0, 2.0), "proj_clip": 0.0, "time_major": major}
    g.node(op, inputs, Tensor(shape, dtype, *hidden_q), options)


CASES = (
    *cases(condition, "IF"),
    *cases(loop, "WHILE"),
    *cases(svdf, "SVDF", bound=SUM),
    *cases(lstm, "UNIDIRECTIONAL_SEQUENCE_LSTM", bound=SUM),
)
