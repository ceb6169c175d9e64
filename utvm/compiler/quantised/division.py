# SPDX-License-Identifier: Apache-2.0
"""The division of a network between CPU and accelerator. No bit of the result changes by it."""

from collections.abc import Callable, Sequence

from utvm.compiler.accelerator import Assistant, Offer, Refused
from utvm.compiler.kernels.cores import estimated_cycles
from utvm.compiler.kernels.nodes import Node, Value, tensor_type
from utvm.compiler.kernels.records import Convolution, Ready
from utvm.compiler.library import Decision
from utvm.compiler.target import Target
from utvm.compiler.tvm_types import element_type

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
    made = []
    for number, part in enumerate(parts):
        output = node.output
        if number < len(parts) - 1:
            kind = part.operator.function.params[-1]
            shape = [int(extent) for extent in kind.ty.shape]
            output = Value(f"{name} ({number + 1})", tensor_type(shape, element_type(kind)))
        made.append(Node(Ready(part.operator), tuple(tensors[read] for read in part.reads), output))
        tensors.append(output)
    return made
