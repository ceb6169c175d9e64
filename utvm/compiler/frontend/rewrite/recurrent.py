# SPDX-License-Identifier: Apache-2.0
"""Unrolled loops: LSTM, GRU and RNN step by step, and control flow known at compile time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm.compiler.frontend.rewrite.graph import Rule, RuleGraph, RuleNode, Unsupported

_MAX_STEPS = 1024
_Function = Callable[[str], str]


@dataclass
class _Direction:
    """One direction of a recurrent node; ``steps``: sums of inputs and biases for all gates, per step."""

    graph: RuleGraph
    node: RuleNode
    steps: list[str]
    recurrent: str
    recurrent_bias: str
    peepholes: str
    size: int
    functions: list[_Function]

    def part(self, value: str, gate: int) -> str:
        return self.graph.slice(value, 1, gate * self.size, (gate + 1) * self.size)

    def product(self, state: str, gate: int) -> str:
        return self.graph.op("MatMul", state, self.part(self.recurrent, gate))


_Step = Callable[[_Direction, str, str, str], tuple[str, str]]


def _lstm(cell: _Direction, projection: str, hidden: str, memory: str) -> tuple[str, str]:
    graph = cell.graph
    sums = graph.op("Add", projection, graph.op("MatMul", hidden, cell.recurrent))
    into, out, forget, new = (cell.part(sums, gate) for gate in range(4))
    first, second, third = cell.functions

    def peeping(gate: str, state: str, number: int) -> str:
        if not cell.peepholes:
            return gate
        return graph.op("Add", gate, graph.op("Mul", cell.part(cell.peepholes, number), state))

    into = first(peeping(into, memory, 0))
    if cell.node.attributes.get("input_forget", 0):
        forget = graph.op("Sub", graph.like(1, into), into)
    else:
        forget = first(peeping(forget, memory, 2))
    memory = graph.op("Add", graph.op("Mul", forget, memory), graph.op("Mul", into, second(new)))
    out = first(peeping(out, memory, 1))
    return graph.op("Mul", out, third(memory)), memory


def _gru(cell: _Direction, projection: str, hidden: str, memory: str) -> tuple[str, str]:
    graph = cell.graph
    first, second = cell.functions
    update = first(graph.op("Add", cell.part(projection, 0), cell.product(hidden, 0)))
    reset = first(graph.op("Add", cell.part(projection, 1), cell.product(hidden, 1)))
    new = cell.part(projection, 2)
    bias = cell.part(cell.recurrent_bias, 2) if cell.recurrent_bias else ""
    if cell.node.attributes.get("linear_before_reset", 0):
        before = cell.product(hidden, 2)
        before = graph.op("Add", before, bias) if bias else before
        new = second(graph.op("Add", new, graph.op("Mul", reset, before)))
    else:
        new = graph.op("Add", new, cell.product(graph.op("Mul", reset, hidden), 2))
        new = second(graph.op("Add", new, bias) if bias else new)
    retained = graph.op("Mul", update, hidden)
    return graph.op("Add", graph.op("Mul", graph.op("Sub", graph.like(1, update), update), new), retained), memory


def _rnn(cell: _Direction, projection: str, hidden: str, memory: str) -> tuple[str, str]:
    sums = cell.graph.op("Add", projection, cell.graph.op("MatMul", hidden, cell.recurrent))
    return cell.functions[0](sums), memory


@dataclass(frozen=True)
class _Kind:
    step: _Step
    gates: int
    defaults: tuple[str, ...]
    # Gates whose recurrent bias is added with the other bias before the steps.
    joined: int


_KINDS = {
    "LSTM": _Kind(_lstm, 4, ("Sigmoid", "Tanh", "Tanh"), 4),
    "GRU": _Kind(_gru, 3, ("Sigmoid", "Tanh"), 2),
    "RNN": _Kind(_rnn, 1, ("Tanh",), 1),
}


def _recurrent(graph: RuleGraph, node: RuleNode) -> list[str]:
    batch_first = node.attributes.get("layout", 0) == 1
    sequence = graph.op("Transpose", node.inputs[0], perm=[1, 0, 2]) if batch_first else node.inputs[0]
    length, batch, _ = graph.shape(sequence)
    if length > _MAX_STEPS:
        raise Unsupported(f"more than {_MAX_STEPS} steps are not supported")
    lengths = np.full(batch, length)
    if node.input(4):
        lengths = graph.require(node.input(4), "its sequence lengths")
    names = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    directions = names[node.attributes.get("direction", "forward")]
    rows, states, memories = [], [], []
    for number, backwards in enumerate(directions):
        row, state, memory = _direction(graph, node, sequence, number, backwards, lengths, batch_first)
        rows.append(graph.op("Unsqueeze", row, graph.constant([1], np.int64)))
        states.append(graph.op("Unsqueeze", state, graph.constant([0], np.int64)))
        memories.append(graph.op("Unsqueeze", memory, graph.constant([0], np.int64)) if memory else "")
    results = [_join(graph, rows, 1), _join(graph, states, 0)]
    if node.operator == "LSTM":
        results.append(_join(graph, memories, 0))
    if batch_first:
        results[0] = graph.op("Transpose", results[0], perm=[2, 0, 1, 3])
        results[1:] = [graph.op("Transpose", result, perm=[1, 0, 2]) for result in results[1:]]
    return results


def _join(graph: RuleGraph, values: Sequence[str], axis: int) -> str:
    return values[0] if len(values) == 1 else graph.op("Concat", *values, axis=axis)


def _direction(
    graph: RuleGraph, node: RuleNode, sequence: str, number: int, backwards: bool, lengths: Any, batch_first: bool
) -> tuple[str, str, str]:
    kind = _KINDS[node.operator]
    length, batch, width = graph.shape(sequence)
    size = graph.shape(node.inputs[2])[2]

    def own(value: str) -> str:
        piece = graph.slice(value, 0, number, number + 1)
        return graph.op("Squeeze", piece, graph.constant([0], np.int64))

    def state(value: str) -> str:
        if not value:
            return graph.constant(np.zeros((batch, size)), graph.dtype(sequence))
        return own(graph.op("Transpose", value, perm=[1, 0, 2]) if batch_first else value)

    weights = graph.op("Transpose", own(node.inputs[1]), perm=[1, 0])
    sums = graph.op("MatMul", graph.reshape(sequence, (length * batch, width)), weights)
    recurrent_bias = ""
    if node.input(3):
        biases = graph.slice(node.input(3), 0, number, number + 1)
        half = kind.gates * size
        early, recurrent_bias = graph.slice(biases, 1, 0, half), graph.slice(biases, 1, half, 2 * half)
        at_once = np.arange(half) < kind.joined * size
        early = graph.op("Add", early, graph.op("Mul", recurrent_bias, graph.like(at_once[None], sequence)))
        sums = graph.op("Add", sums, early)
    steps = [graph.slice(sums, 0, step * batch, (step + 1) * batch) for step in range(length)]
    cell = _Direction(
        graph, node, steps, graph.op("Transpose", own(node.inputs[2]), perm=[1, 0]), recurrent_bias,
        graph.slice(node.input(7), 0, number, number + 1) if node.input(7) else "",
        size, _functions(graph, node, kind, number),
    )  # fmt: skip
    memory = state(node.input(6)) if node.operator == "LSTM" else ""
    return _steps(cell, kind.step, (state(node.input(5)), memory), backwards, lengths)


def _steps(cell: _Direction, step: _Step, begin: tuple[str, str], reverse: bool, lengths: Any) -> tuple[str, str, str]:
    graph, (hidden, memory) = cell.graph, begin
    length = len(cell.steps)
    rows = [""] * length
    for place in range(length - 1, -1, -1) if reverse else range(length):
        new_hidden, new_memory = step(cell, cell.steps[place], hidden, memory)
        row = new_hidden
        if (lengths <= place).any():
            # Steps after the end of a sequence change no state and output zeros.
            inside = graph.constant((place < lengths).reshape(-1, 1))
            row = graph.op("Where", inside, new_hidden, graph.like(0, new_hidden))
            new_hidden = graph.op("Where", inside, new_hidden, hidden)
            new_memory = graph.op("Where", inside, new_memory, memory) if memory else ""
        hidden, memory = new_hidden, new_memory
        rows[place] = graph.op("Unsqueeze", row, graph.constant([0], np.int64))
    return _join(graph, rows, 0), hidden, memory


def _functions(graph: RuleGraph, node: RuleNode, kind: _Kind, number: int) -> list[_Function]:
    count = len(kind.defaults)
    names = node.attributes.get("activations") or list(kind.defaults) * 2
    names = names[number * count : (number + 1) * count] or list(kind.defaults)
    alphas, betas = (
        iter(node.attributes.get("activation_alpha", ())),
        iter(node.attributes.get("activation_beta", ())),
    )
    # As onnxruntime, which limits the sums of the gates but not the cell before its output.
    bounds = [*[node.attributes.get("clip")] * 2, None]

    def function(name: str, bound: float | None) -> _Function:
        operator = {item.lower(): item for item in _ACTIVATIONS}.get(name.lower(), "")
        if not operator:
            raise Unsupported(f"the activation {name} is not supported")
        numbers = {
            key: next(values, None) for key, values in zip(_ACTIVATIONS[operator], (alphas, betas), strict=False)
        }
        settings = {key: value for key, value in numbers.items() if value is not None}

        def apply(value: str) -> str:
            if bound is not None:
                value = graph.op("Clip", value, graph.like(-bound, value), graph.like(bound, value))
            return graph.op(operator, value, **settings)

        return apply

    return list(map(function, names, bounds))


_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"), ()),
    **dict.fromkeys(("Elu", "LeakyRelu", "ThresholdedRelu"), ("alpha",)),
    "HardSigmoid": ("alpha", "beta"),
}
"""ONNX operators that are activations, and their attributes."""
_MAX_ROUNDS = 1024


def _if(graph: RuleGraph, node: RuleNode) -> list[str]:
    condition = graph.require(node.inputs[0], "its condition")
    branch = node.attributes["then_branch" if condition.reshape(-1)[0] else "else_branch"]
    return graph.inline(branch.node, {}, [value.name for value in branch.output], branch.initializer)


def _loop(graph: RuleGraph, node: RuleNode) -> list[str]:
    body = node.attributes["body"]
    most = None if not node.inputs[0] else int(graph.require(node.inputs[0], "its trip count").reshape(-1)[0])
    condition = node.input(1) or graph.constant(True, np.bool_)
    carried = [graph.name(name) for name in node.inputs[2:]]
    rows: list[list[str]] = [[] for _ in body.output[1 + len(carried) :]]
    number = 0
    while (most is None or number < most) and graph.require(condition, "its condition").reshape(-1)[0]:
        if number == _MAX_ROUNDS:
            raise Unsupported(f"more than {_MAX_ROUNDS} rounds of a loop are not supported")
        arguments = [graph.constant(number, np.int64), condition, *carried]
        condition, *results = _round(graph, body, arguments)
        carried = results[: len(carried)]
        for row, result in zip(rows, results[len(carried) :], strict=True):
            row.append(_stacked_alone(graph, result, 0))
        number += 1
    if rows and not number:
        raise Unsupported("a loop without a round gives tensors without elements")
    return [*carried, *(graph.op("Concat", *row, axis=0) for row in rows)]


def _scan(graph: RuleGraph, node: RuleNode) -> list[str]:
    if node.opset < 9:
        raise Unsupported("Scan of operator set 8 is not supported; 9 is")
    body, count = node.attributes["body"], node.attributes["num_scan_inputs"]
    carried, scanned = list(node.inputs[:-count]), node.inputs[-count:]
    scan_outputs = len(body.output) - len(carried)
    axes = node.attributes.get("scan_input_axes", [0] * count)
    backwards = node.attributes.get("scan_input_directions", [0] * count)
    out_axes = node.attributes.get("scan_output_axes", [0] * scan_outputs)
    out_backwards = node.attributes.get("scan_output_directions", [0] * scan_outputs)
    rounds = graph.shape(scanned[0])[axes[0]]
    if rounds > _MAX_ROUNDS:
        raise Unsupported(f"more than {_MAX_ROUNDS} rounds of a scan are not supported")
    rows: list[list[str]] = [[] for _ in range(scan_outputs)]
    for number in range(rounds):
        arguments = list(carried)
        for value, axis, back in zip(scanned, axes, backwards, strict=True):
            place = rounds - 1 - number if back else number
            piece = graph.slice(value, axis, place, place + 1)
            arguments.append(graph.op("Squeeze", piece, graph.constant([axis], np.int64)))
        results = _round(graph, body, arguments)
        carried = results[: len(carried)]
        for row, result, axis in zip(rows, results[len(carried) :], out_axes, strict=True):
            row.append(_stacked_alone(graph, result, axis))
    joined = [
        graph.op("Concat", *(row[::-1] if back else row), axis=axis)
        for row, axis, back in zip(rows, out_axes, out_backwards, strict=True)
    ]
    return [*carried, *joined]


def _round(graph: RuleGraph, body: Any, arguments: list[str]) -> list[str]:
    names = dict(zip((value.name for value in body.input), arguments, strict=True))
    return graph.inline(body.node, names, [value.name for value in body.output], body.initializer)


def _stacked_alone(graph: RuleGraph, value: str, axis: int) -> str:
    return graph.op("Unsqueeze", value, graph.constant([axis], np.int64))


RULES: dict[str, Rule] = {"If": _if, "Loop": _loop, "Scan": _scan, **dict.fromkeys(_KINDS, _recurrent)}
