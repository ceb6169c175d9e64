# SPDX-License-Identifier: Apache-2.0
"""Memory planning: tensors that are live at the same time share no bytes, except allowed overlaps; little is wasted."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from utvm.compiler import Memory, Region
from utvm.compiler.library import Tensor
from utvm.compiler.memory.graph import Graph, Location, Step
from utvm.compiler.memory.plan import Plan, plan_memory
from utvm.errors import CompileError, ConfigError, DoesNotFitError

Overlaps = Mapping[str, tuple[int | None, ...]]
Key = tuple[str, int]


@dataclass(frozen=True)
class Example:
    """A graph in which step i calls function fi and writes one tensor, with the planner's inputs."""

    graph: Graph
    workspaces: dict[str, int]
    overlaps: dict[str, tuple[int | None, ...]] = field(default_factory=dict)

    def plan(self, memory: Memory | None = None) -> Plan:
        return plan_memory(self.graph, self.workspaces, self.overlaps, memory)


def chain(
    sizes: list[int],
    *,
    edges: list[list[int]] | None = None,
    workspaces: list[int] | None = None,
    overlaps: list[tuple[int | None, ...]] | None = None,
    inputs: int = 1,
) -> Example:
    """A graph of tensors: the first are inputs, the last is the output, step i writes tensor inputs + i.

    Args:
        sizes: sizes of the tensors in bytes.
        edges: tensors that each step reads; by default the previous tensor.
    """
    count = len(sizes)

    def location(number: int) -> Location:
        if number < inputs:
            return Location("input", number)
        return Location("output", 0) if number == count - 1 else Location("buffer", number - inputs)

    def tensors(first: int, end: int) -> tuple[Tensor, ...]:
        return tuple(Tensor(f"t{number}", (sizes[number],), "int8") for number in range(first, end))

    edges = edges or [[number] for number in range(inputs - 1, count - 1)]
    graph = Graph(
        inputs=tensors(0, inputs),
        buffers=tensors(inputs, count - 1),
        constants=(),
        steps=tuple(
            Step(f"f{number}", tuple(map(location, reads)), (location(number + inputs),))
            for number, reads in enumerate(edges)
        ),
        outputs=tensors(count - 1, count),
        functions={},
    )
    names = [f"f{number}" for number in range(len(edges))]
    return Example(
        graph,
        dict(zip(names, workspaces or [0] * len(edges), strict=True)),
        dict(zip(names, overlaps or [], strict=False)),
    )


@st.composite
def examples(draw: st.DrawFn) -> Example:
    """Graphs of up to 12 steps with several inputs, branches, dead ends, workspaces and overlaps."""
    inputs, steps = draw(st.integers(1, 3)), draw(st.integers(1, 12))
    sizes = draw(st.lists(st.integers(1, 125), min_size=inputs + steps, max_size=inputs + steps))
    edges = [draw(st.lists(st.integers(0, inputs + number - 1), min_size=1, max_size=3)) for number in range(steps)]
    distances = st.one_of(st.none(), st.sampled_from([0, 0, 4, 40, 200]))
    return chain(
        [4 * size for size in sizes],
        edges=edges,
        workspaces=[4 * draw(st.sampled_from([0, 0, 4, 25, 83])) for _ in range(steps)],
        overlaps=[tuple(draw(distances) for _ in reads) for reads in edges],
        inputs=inputs,
    )


class Simulation:
    """Runs a plan byte by byte and checks that each byte that is read still has its writer's value.

    It does not use the planner's lifetimes or conflicts: only the steps, their order, and the promises of overlaps.
    """

    def __init__(self, example: Example, plan: Plan) -> None:
        self._example = example
        self._plan = plan
        self._owner: dict[tuple[str, int], tuple[Key, int]] = {}

    def run(self) -> None:
        graph = self._example.graph
        for number in range(len(graph.inputs)):
            self._write(("input", number))
        for index, step in enumerate(graph.steps):
            reads = [(location.kind, location.number) for location in step.reads]
            (target,) = ((location.kind, location.number) for location in step.writes)
            for source in reads:
                self._check(source, f"when step {index} begins")
            distances = self._example.overlaps.get(step.function, (None,) * len(reads))
            self._write(target)
            if self._example.workspaces[step.function]:
                self._write(("workspace", index))
                self._check(target, f"when step {index} has used its workspace")
            for source, distance in zip(reads, distances, strict=True):
                if distance is None or not self._begins_before(target, source, distance):
                    self._check(source, f"while step {index} runs")
        self._check(("output", 0), "at the end")

    def _begins_before(self, target: Key, source: Key, distance: int) -> bool:
        output, origin = self._plan.blocks[target], self._plan.blocks[source]
        return output.region == origin.region and origin.offset - output.offset >= distance

    def _bytes(self, key: Key) -> list[tuple[str, int]]:
        block = self._plan.blocks[key]
        assert block.offset % 4 == 0
        assert block.offset + block.size <= self._plan.region_bytes[block.region]
        return [(block.region, block.offset + number) for number in range(block.size)]

    def _write(self, key: Key) -> None:
        for number, address in enumerate(self._bytes(key)):
            self._owner[address] = (key, number)

    def _check(self, key: Key, when: str) -> None:
        for number, address in enumerate(self._bytes(key)):
            assert self._owner.get(address) == (key, number), f"{key} is overwritten {when}"


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(examples())
def test_bytes_are_not_overwritten_before_they_are_read(example: Example) -> None:
    plan = example.plan()
    Simulation(example, plan).run()
    assert plan.lower_bound_bytes <= sum(plan.region_bytes.values())


@settings(deadline=None, max_examples=60)
@given(examples())
def test_plan_is_within_five_percent_of_the_bound(example: Example) -> None:
    plan = example.plan()
    # The bound ignores overlaps that need more space than disjoint blocks, and alignment.
    slack = 16 if not any(any(distance or 0 for distance in row) for row in example.overlaps.values()) else 400
    assert plan.region_bytes["arena"] <= 1.05 * plan.lower_bound_bytes + slack


@settings(deadline=None, max_examples=60)
@given(examples(), st.integers(0, 1500), st.integers(0, 1500))
def test_region_sizes_are_respected(example: Example, fast: int, slow: int) -> None:
    memory = Memory((Region("fast", fast), Region("slow", slow), Region("rest")), {"t0": "slow"})
    try:
        plan = example.plan(memory)
    except DoesNotFitError:
        assert slow < example.graph.inputs[0].size_bytes
        return
    Simulation(example, plan).run()
    assert plan.region_bytes["fast"] <= fast
    assert plan.region_bytes["slow"] <= slow
    assert plan.blocks["input", 0].region == "slow"


def test_chain_needs_two_buffers() -> None:
    plan = chain([64] * 9).plan()
    assert (plan.region_bytes, plan.lower_bound_bytes) == ({"arena": 128}, 128)


def test_chain_in_place_needs_one_buffer() -> None:
    plan = chain([64] * 9, overlaps=[(0,)] * 8).plan()
    assert (plan.region_bytes, plan.lower_bound_bytes) == ({"arena": 64}, 64)


def test_input_that_is_read_again_is_not_overwritten() -> None:
    plan = chain([64, 64, 64], edges=[[0], [0, 1]], overlaps=[(0,), (0, 0)]).plan()
    assert (plan.region_bytes, plan.lower_bound_bytes) == ({"arena": 128}, 128)


def test_tensor_read_twice_needs_both_overlaps() -> None:
    plan = chain([64, 64], edges=[[0, 0]], overlaps=[(0, None)]).plan()
    assert plan.region_bytes == {"arena": 128}


def test_diagonal_overlap_has_its_distance() -> None:
    plan = chain([1000, 1000], overlaps=[(48,)]).plan()
    assert (plan.region_bytes, plan.lower_bound_bytes) == ({"arena": 1048}, 1048)
    assert plan.blocks["input", 0].offset - plan.blocks["output", 0].offset == 48


def test_workspace_reuses_a_dead_buffer() -> None:
    plan = chain([160, 16, 16, 16], workspaces=[0, 0, 160]).plan()
    assert plan.region_bytes == {"arena": 192}


def test_residual_network_reaches_the_bound() -> None:
    # A block's input outlives two convolutions, then three tensors of different sizes follow.
    sizes = [3072, 16384, 16384, 16384, 8192, 8192, 8192, 4096, 4096, 64]
    edges = [[0], [1], [2, 1], [3], [4], [5, 3], [6], [7], [8]]
    plan = chain(sizes, edges=edges).plan()
    assert plan.region_bytes["arena"] == plan.lower_bound_bytes == 3 * 16384


def test_most_used_tensors_are_in_fast_memory() -> None:
    example = chain([100, 1000, 100, 100], edges=[[0], [1, 0], [0, 2]])
    plan = example.plan(Memory((Region("fast", 300), Region("slow"))))
    assert [plan.blocks[key].region for key in (("input", 0), ("buffer", 0), ("buffer", 1))] == ["fast", "slow", "fast"]


def test_too_little_memory_names_region_and_sizes() -> None:
    example = chain([100, 1000, 100])
    with pytest.raises(DoesNotFitError, match=r"region slow has 900 bytes, .* need 1\d\d\d"):
        example.plan(Memory((Region("fast", 50), Region("slow", 900))))
    with pytest.raises(DoesNotFitError, match=r"region fast has 50 bytes, .* need 1000"):
        example.plan(Memory((Region("fast", 50), Region("slow")), {"t1": "fast"}))


def test_unknown_pins_are_refused() -> None:
    with pytest.raises(CompileError, match="tensor nobody") as caught:
        chain([16, 16, 16]).plan(Memory(pins={"nobody": "arena"}))
    assert "t0, t1, t2" in caught.value.hint
    with pytest.raises(ConfigError, match="region sdram, which does not exist"):
        Memory(pins={"t0": "sdram"})


@pytest.mark.parametrize("name", ["", "2fast", "for", "inputs", "a b", "é", "_x"])
def test_region_name_must_be_valid_in_c(name: str) -> None:
    with pytest.raises(ConfigError, match="memory region"):
        Region(name)


def test_region_names_must_differ() -> None:
    with pytest.raises(ConfigError, match="different names"):
        Memory((Region("fast"), Region("FAST")))
    with pytest.raises(ConfigError, match="different names"):
        Memory(())
    with pytest.raises(ConfigError, match="-1 bytes"):
        Region("fast", -1)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.sampled_from(["int8", "int16", "float32", "float64"])), min_size=2),
    st.integers(0, 7),
)
def test_blocks_are_aligned_to_their_elements(shapes: list[tuple[int, str]], workspace: int) -> None:
    # Each step reads all earlier tensors, so all are live at the end.
    tensors = [Tensor(f"t{number}", (count,), dtype) for number, (count, dtype) in enumerate(shapes)]
    locations = [Location("input", 0), *(Location("buffer", number) for number in range(len(shapes) - 2))]
    locations.append(Location("output", 0))
    steps = tuple(
        Step(f"f{number}", tuple(locations[:number]), (locations[number],)) for number in range(1, len(locations))
    )
    graph = Graph((tensors[0],), tuple(tensors[1:-1]), (), steps, (tensors[-1],), {})
    plan = plan_memory(graph, {step.function: workspace for step in steps}, {})
    for (kind, number), block in plan.blocks.items():
        if kind == "workspace":
            assert block.offset % 8 == 0
            continue
        tensor = {"input": graph.inputs, "buffer": graph.buffers, "output": graph.outputs}[kind][number]
        # At least four bytes: narrow elements are loaded four at once.
        assert block.offset % max(4, tensor.size_bytes // tensor.shape[0]) == 0
