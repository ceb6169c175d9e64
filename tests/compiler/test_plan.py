"""Memory planning: nothing that is alive at the same time shares bytes."""

from hypothesis import given
from hypothesis import strategies as st

from utvm.compiler.graph import Graph, Place, Step
from utvm.compiler.library import Tensor
from utvm.compiler.plan import Plan, plan_memory


def chain(sizes: list[int], edges: list[list[int]], results: list[int]) -> Graph:
    """Make a graph in which step i writes buffer i and reads the buffers named in edges[i]."""
    return Graph(
        inputs=(),
        buffers=tuple(Tensor(f"b{number}", (size,), "int8") for number, size in enumerate(sizes)),
        constants=(),
        steps=tuple(
            Step(f"f{number}", tuple(Place("buffer", edge) for edge in reads), (Place("buffer", number),))
            for number, reads in enumerate(edges)
        ),
        results=tuple(Place("buffer", number) for number in results),
        outputs=tuple(Tensor(f"y{number}", (sizes[number],), "int8") for number in results),
        functions={},
    )


def lives(graph: Graph, plan: Plan, workspaces: dict[str, int]) -> list[tuple[int, int, int, int]]:
    """Return first step, last step, first byte and end of everything in the arena, found by simulation."""
    found = []
    for number, offset in plan.offsets.items():
        uses = [index for index, step in enumerate(graph.steps) if Place("buffer", number) in step.reads]
        found.append((number, max([number, *uses]), offset, offset + graph.buffers[number].size_bytes))
    for index, offset in plan.workspaces.items():
        found.append((index, index, offset, offset + workspaces[graph.steps[index].function]))
    return found


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, dict[str, int]]:
    count = draw(st.integers(1, 12))
    sizes = draw(st.lists(st.integers(1, 500), min_size=count, max_size=count))
    edges = [
        draw(st.lists(st.integers(0, number - 1), max_size=3, unique=True)) if number else []
        for number in range(count)
    ]
    results = draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=3))
    workspaces = {f"f{number}": draw(st.sampled_from([0, 0, 16, 100, 333])) for number in range(count)}
    return chain(sizes, edges, results), workspaces


@given(graphs())
def test_nothing_alive_overlaps_and_everything_fits(example: tuple[Graph, dict[str, int]]) -> None:
    graph, workspaces = example
    plan = plan_memory(graph, workspaces)
    everything = lives(graph, plan, workspaces)
    for index, (first, last, start, end) in enumerate(everything):
        assert start % 16 == 0
        assert end <= plan.arena_bytes
        for other_first, other_last, other_start, other_end in everything[index + 1 :]:
            together = first <= other_last and other_first <= last
            assert not together or end <= other_start or other_end <= start
    direct = {place.number for place in graph.results}
    assert set(plan.offsets) | direct == set(range(len(graph.buffers)))
    assert set(plan.workspaces) == {index for index, step in enumerate(graph.steps) if workspaces[step.function]}


def test_a_chain_needs_two_buffers_however_long_it_is() -> None:
    count = 9
    graph = chain([64] * count, [[], *([number] for number in range(count - 1))], [count - 1])
    assert plan_memory(graph, {f"f{number}": 0 for number in range(count)}).arena_bytes == 128


def test_an_output_is_written_in_place() -> None:
    plan = plan_memory(chain([64], [[]], [0]), {"f0": 0})
    assert (plan.direct, plan.arena_bytes) == ({0: 0}, 0)


def test_a_workspace_takes_the_place_of_a_dead_buffer() -> None:
    graph = chain([160, 16, 16], [[], [0], [1]], [2])
    plan = plan_memory(graph, {"f0": 0, "f1": 0, "f2": 160})
    assert plan.arena_bytes == 176
