# SPDX-License-Identifier: Apache-2.0
"""Which buffers are parts of others or the caller's outputs, and what is left to copy."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from utvm.compiler.library import Tensor
from utvm.compiler.memory.steps import Location, Step


def settle(
    steps: Sequence[Step],
    buffers: Sequence[Tensor],
    results: Sequence[Location],
    outputs: Sequence[Tensor],
    joined: Mapping[int, Location],
    states: Sequence[Tensor] = (),
) -> tuple[tuple[Step, ...], tuple[Tensor, ...]]:
    """Let operators write where their results are wanted.

    A buffer that is an output is written there at once. An output that is an input, a constant, a part of another
    buffer or an output already is copied at the end. So is what is kept for the next run: until then, that has
    what this run reads; one state that becomes another goes through a buffer.

    Args:
        steps: which write no outputs yet.
        results: where each output's elements are without this, and each state's behind them.
        joined: buffer number to its place in another buffer, of which it is a part.
        states: what is kept.

    Returns:
        The steps, and the buffers that are left, numbered anew.
    """
    results = [_root(place, joined) for place in results]
    results, kept_results = results[: len(outputs)], results[len(outputs) :]
    direct: dict[int, int] = {}
    for number, (place, output) in enumerate(zip(results, outputs, strict=True)):
        if place.kind == "buffer" and output.size_bytes == buffers[place.number].size_bytes:
            direct.setdefault(place.number, number)
    kept = [number for number in range(len(buffers)) if number not in joined and number not in direct]
    numbers = {old: new for new, old in enumerate(kept)}

    def final(place: Location) -> Location:
        place = _root(place, joined)
        if place.kind != "buffer":
            return place
        if place.number in direct:
            return Location("output", direct[place.number], place.offset)
        return replace(place, number=numbers[place.number])

    settled = [
        replace(step, reads=tuple(map(final, step.reads)), writes=tuple(map(final, step.writes))) for step in steps
    ]
    for number, (place, output) in enumerate(zip(results, outputs, strict=True)):
        if place.kind != "buffer" or direct.get(place.number) != number:
            settled.append(Step("", (final(place),), (Location("output", number),), output.size_bytes))
    left = [buffers[number] for number in kept]
    copies = []
    for number, (place, state) in enumerate(zip(kept_results, states, strict=True)):
        source = final(place)
        if source.kind == "state":
            left.append(state)
            aside = Location("buffer", len(left) - 1)
            settled.append(Step("", (source,), (aside,), state.size_bytes))
            source = aside
        copies.append(Step("", (source,), (Location("state", number),), state.size_bytes))
    return (*settled, *copies), tuple(left)


def _root(place: Location, joined: Mapping[int, Location]) -> Location:
    while place.kind == "buffer" and place.number in joined:
        whole = joined[place.number]
        place = replace(whole, offset=whole.offset + place.offset)
    return place
