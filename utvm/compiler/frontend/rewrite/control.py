# SPDX-License-Identifier: Apache-2.0
"""Control flow whose way is known while compiling: the branch that is taken, and loops unrolled."""

from typing import Any

import numpy as np

from utvm.compiler.frontend.rewrite.graph import Rule, RuleGraph, RuleNode, Unsupported

_MAX_ROUNDS = 1024


def _if(graph: RuleGraph, node: RuleNode) -> list[str]:
    condition = graph.needed(node.inputs[0], "its condition")
    branch = node.attributes["then_branch" if condition.reshape(-1)[0] else "else_branch"]
    return graph.inline(branch.node, {}, [value.name for value in branch.output], branch.initializer)


def _loop(graph: RuleGraph, node: RuleNode) -> list[str]:
    body = node.attributes["body"]
    most = None if not node.inputs[0] else int(graph.needed(node.inputs[0], "its trip count").reshape(-1)[0])
    condition = node.input(1) or graph.constant(True, np.bool_)
    carried = [graph.name(name) for name in node.inputs[2:]]
    rows: list[list[str]] = [[] for _ in body.output[1 + len(carried) :]]
    number = 0
    while (most is None or number < most) and graph.needed(condition, "its condition").reshape(-1)[0]:
        if number == _MAX_ROUNDS:
            raise Unsupported(f"more than {_MAX_ROUNDS} rounds of a loop are not supported")
        given = [graph.constant(number, np.int64), condition, *carried]
        condition, *results = _round(graph, body, given)
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
    wanted = len(body.output) - len(carried)
    axes = node.attributes.get("scan_input_axes", [0] * count)
    backwards = node.attributes.get("scan_input_directions", [0] * count)
    out_axes = node.attributes.get("scan_output_axes", [0] * wanted)
    out_backwards = node.attributes.get("scan_output_directions", [0] * wanted)
    rounds = graph.shape(scanned[0])[axes[0]]
    if rounds > _MAX_ROUNDS:
        raise Unsupported(f"more than {_MAX_ROUNDS} rounds of a scan are not supported")
    rows: list[list[str]] = [[] for _ in range(wanted)]
    for number in range(rounds):
        given = list(carried)
        for value, axis, back in zip(scanned, axes, backwards, strict=True):
            place = rounds - 1 - number if back else number
            piece = graph.sliced(value, axis, place, place + 1)
            given.append(graph.op("Squeeze", piece, graph.constant([axis], np.int64)))
        results = _round(graph, body, given)
        carried = results[: len(carried)]
        for row, result, axis in zip(rows, results[len(carried) :], out_axes, strict=True):
            row.append(_stacked_alone(graph, result, axis))
    joined = [
        graph.op("Concat", *(row[::-1] if back else row), axis=axis)
        for row, axis, back in zip(rows, out_axes, out_backwards, strict=True)
    ]
    return [*carried, *joined]


def _round(graph: RuleGraph, body: Any, given: list[str]) -> list[str]:
    names = dict(zip((value.name for value in body.input), given, strict=True))
    return graph.inline(body.node, names, [value.name for value in body.output], body.initializer)


def _stacked_alone(graph: RuleGraph, value: str, axis: int) -> str:
    return graph.op("Unsqueeze", value, graph.constant([axis], np.int64))


RULES: dict[str, Rule] = {"If": _if, "Loop": _loop, "Scan": _scan}
