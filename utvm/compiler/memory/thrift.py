# SPDX-License-Identifier: Apache-2.0
"""Which operators have to do with less scratch memory than they like: where it would cost the arena bytes."""

from collections.abc import Callable, Mapping

from utvm.compiler.memory.plan import Plan
from utvm.compiler.memory.steps import Graph
from utvm.errors import DoesNotFitError

_ROUNDS = 16

Saving = Mapping[str, int]
"""Function to which of its forms is taken: 0 is the fastest, each further one needs less memory."""


def save(graph: Graph, forms: Mapping[str, int], plan: Callable[[Saving], Plan]) -> tuple[Plan, Saving]:
    """Plan memory, and choose forms of functions.

    Args:
        forms: how many forms functions have.
        plan: makes the plan for some choice.

    Returns:
        The plan, which takes no more bytes than if all functions had their last forms, and the choice.
    """
    last = {function: count - 1 for function, count in forms.items()}
    least = plan(last)
    best: tuple[Plan, Saving] | None = None
    chosen = dict.fromkeys(forms, 0)
    for _ in range(_ROUNDS if any(last.values()) else 0):
        try:
            tried = plan(chosen)
        except DoesNotFitError:
            break
        if best is None or _bytes(tried) < _bytes(best[0]):
            best = tried, dict(chosen)
        # What lies above what no plan can do without.
        above = _at_the_top(graph, tried, least.lower_bound_bytes)
        guilty = [item for item in above if chosen.get(item, 0) < last.get(item, 0)]
        if not guilty:
            break
        for item in guilty:
            chosen[item] += 1
    return best if best is not None and _bytes(best[0]) <= _bytes(least) else (least, last)


def _bytes(plan: Plan) -> int:
    return sum(plan.region_bytes.values())


def _at_the_top(graph: Graph, plan: Plan, limit: int) -> set[str]:
    above = [block for block in plan.blocks.values() if block.offset + block.size > limit]
    return {
        step.function
        for index, step in enumerate(graph.steps)
        if any(block.first <= index <= block.last for block in above)
    }
