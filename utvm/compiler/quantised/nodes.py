# SPDX-License-Identifier: Apache-2.0
"""Passes over integer nodes: fusions, and the division of work with an accelerator. No bit of a result changes."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from utvm.compiler.accelerator import Assistant, Offer, Refused
from utvm.compiler.kernels.addition import Addition
from utvm.compiler.kernels.cores import estimated_cycles
from utvm.compiler.kernels.quantities import Native, Node, Value, needed, tensor_type
from utvm.compiler.kernels.records import Convolution, Ready, Residual
from utvm.compiler.library import Decision
from utvm.compiler.notes import note
from utvm.compiler.target import Target
from utvm.compiler.tvm_types import element_type


def fuse(nodes: Sequence[Node], results: Sequence[Value]) -> list[Node]:
    """Let convolutions do what is done before and after them.

    - Zeros that are padded before a convolution become its padding.
    - An addition of a convolution's result, which nobody else reads, becomes part of the convolution.

    Args:
        results: what must still be computed.
    """
    return _fuse_additions(needed(_fuse_paddings(nodes), results), results)


def _fuse_paddings(nodes: Sequence[Node]) -> list[Node]:
    makers = {id(node.output): node for node in nodes}
    fused: list[Node] = []
    for node in nodes:
        work = node.work
        before = makers.get(id(node.inputs[0])) if node.inputs else None
        if isinstance(work, Convolution) and before is not None and len(node.inputs[0].shape) == 4:
            widths = _pad_widths(before, work.input_zero)
            if widths is not None:
                top, left, bottom, right = widths
                _, height, width, channels = before.inputs[0].shape
                padding = (
                    work.padding[0] + top,
                    work.padding[1] + left,
                    work.padding[2] + bottom,
                    work.padding[3] + right,
                )
                work = replace(work, input_shape=(height, width, channels), padding=padding)
                note("fused", f"the padding {before.output.name} into the convolution {node.output.name}")
                fused.append(Node(work, (before.inputs[0], *node.inputs[1:]), node.output))
                continue
        fused.append(node)
    return fused


def _pad_widths(node: Node, zero: int) -> tuple[int, int, int, int] | None:
    if not isinstance(node.work, Native) or node.work.operator != "relax.nn.pad":
        return None
    attributes = node.work.call.attrs
    widths = [int(width) for width in attributes.pad_width]
    if (
        str(attributes.pad_mode) != "constant"
        or float(attributes.pad_value) != zero
        or any(widths[:2] + widths[6:])
    ):
        return None
    _, _, top, bottom, left, right, _, _ = widths
    return top, left, bottom, right


def _fuse_additions(nodes: Sequence[Node], results: Sequence[Value]) -> list[Node]:
    uses = Counter(id(value) for node in nodes for value in node.inputs)
    uses.update(id(value) for value in results)
    makers = {id(node.output): (number, node) for number, node in enumerate(nodes)}
    fused = list(nodes)
    gone: set[int] = set()
    for number, node in enumerate(nodes):
        work = node.work
        if (
            not isinstance(work, Addition)
            or work.subtract
            or work.dtype != "int8"
            or work.shapes[0] != work.shapes[1]
        ):
            continue
        candidates = []
        for side, value in enumerate(node.inputs):
            maker = makers.get(id(value))
            if maker is not None and isinstance(maker[1].work, Convolution) and uses[id(value)] == 1:
                candidates.append((maker[0], side, maker[1]))
        if not candidates:
            continue
        # The convolution that comes last: the other operand is there by then.
        place, side, convolution = max(candidates, key=lambda item: item[0])
        record = convolution.work
        other = node.inputs[1 - side]
        if not isinstance(record, Convolution) or record.residual is not None or len(other.shape) != 4:
            continue
        if id(other) in makers and makers[id(other)][0] > place:
            continue
        residual = Residual(
            work.zeros[side],
            work.zeros[1 - side],
            work.factors[side],
            work.factors[1 - side],
            work.output,
            work.output_zero,
            work.low,
            work.high,
        )
        note("fused", f"the addition {node.output.name} into the convolution {convolution.output.name}")
        fused[place] = Node(replace(record, residual=residual), (*convolution.inputs, other), node.output)
        makers[id(node.output)] = (place, fused[place])
        gone.add(number)
    return [node for number, node in enumerate(fused) if number not in gone]


_CYCLES_A_BYTE = 8.0  # Of a byte that a CPU puts elsewhere, to decide by and not to report as measured.


def divide(
    nodes: Sequence[Node], assistant: Assistant, target: Target, name_of: Callable[[Value], str]
) -> tuple[list[Node], tuple[Decision, ...]]:
    """Give an accelerator what it is to do.

    Args:
        target: the CPU that the rest is for.
        name_of: what the model calls a tensor.

    Returns:
        All nodes, and what was decided of each convolution and dense layer.
    """
    divided: list[Node] = []
    decisions = []
    for node in nodes:
        if not isinstance(node.work, Convolution):
            divided.append(node)
            continue
        cpu, name = estimated_cycles(node.work, target), name_of(node.output)
        try:
            offer = assistant.offer(node.work)
        except Refused as refused:
            decisions.append(Decision(name, "CPU", refused.reason, cpu))
            divided.append(node)
            continue
        there = round(offer.cycles * assistant.cpu_cycles + offer.arranged_bytes * _CYCLES_A_BYTE)
        given = assistant.everything or there < cpu
        estimated = f"it is estimated to be faster {'there' if given else 'on the CPU'}"
        reason = "all that can be is asked for" if assistant.everything else estimated
        where = assistant.identity if given else "CPU"
        decisions.append(Decision(name, where, reason, cpu, there, offer.moved_bytes))
        divided += _in_parts(node, offer, name) if given else [node]
    return divided, tuple(decisions)


def _in_parts(node: Node, offer: Offer, name: str) -> list[Node]:
    tensors = list(node.inputs)
    parts = offer.parts()
    maker = []
    for number, part in enumerate(parts):
        output = node.output
        if number < len(parts) - 1:
            kind = part.operator.function.params[-1]
            shape = [int(extent) for extent in kind.ty.shape]
            output = Value(f"{name} ({number + 1})", tensor_type(shape, element_type(kind)))
        maker.append(Node(Ready(part.operator), tuple(tensors[read] for read in part.reads), output))
        tensors.append(output)
    return maker
