# SPDX-License-Identifier: Apache-2.0
"""The search: choose the next candidate of each layer of a model, measure it, log it.

Layers with several implementations are extracted and measured alone. Operators without a kernel of utvm are scheduled
by TVM's MetaSchedule with restricted rules. No schedule changes a result bit: sums keep their order, so no reduction
is split or vectorised.
"""

import json
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm

from utvm import compiler, errors
from utvm.compiler.build import graph_of, library_of
from utvm.compiler.kernels.cores import KERNELS
from utvm.compiler.kernels.functions import KERNEL, LAYER
from utvm.compiler.memory.graph import Graph, Location, Step
from utvm.compiler.schedule.lower import C_TARGET, layer_of, plan_of, replay, subject
from utvm.compiler.tvm_types import element_type
from utvm.tuning.log import Kind, LogEntry, Origin, append
from utvm.tuning.measure import Candidate, Measurer
from utvm.tuning.worker import CandidateResult

_ONLY = "layer"
_FULL_RANGE = frozenset({"int8", "uint8", "int16", "uint16"})
_BATCH = 16  # Candidates per image, and per update of the best.
_OTHER_BITS = "its result differs from that without tuning"
_TILES = "SSRS"
"""Two levels of tiles, the reduction, the innermost tile: splitting the reduction would change floats."""
_UNROLLED = (0, 16, 64)
_INNERMOST = 64
_POPULATION = 32
_ALL = 1 << 20


@dataclass(frozen=True)
class ModelLayer:
    """A layer of a model.

    Attributes:
        makes, times: names of its outputs, and the number of its occurrences.
        graph: the layer alone, untuned, with the constants of the model.
        kernels: the same graph for each other kernel that supports the layer.
        kernel: name of the kernel used without tuning; empty if the layer has none.
    """

    name: str
    makes: str
    times: int
    graph: Graph
    kernels: Mapping[str, Graph]
    kernel: str
    target: compiler.Target

    @property
    def function(self) -> Any:
        return self.graph.functions[_ONLY]

    def library(self, symbol: str, kind: str, choice: str) -> compiler.Library:
        """Compile a candidate, given as in :class:`utvm.tuning.log.LogEntry`; ``symbol`` prefixes its symbols."""
        graph = self.kernels[choice] if kind == "kernel" else self.graph
        if kind == "trace":
            graph = replace(graph, functions={_ONLY: replay(self.function, choice)})
        return library_of(symbol, graph, self.target)

    def inputs(self, seed: int) -> list[npt.NDArray[Any]]:
        """Return random inputs: normal floats, full-range small integers; 0 or 1 for others, maybe indices."""
        generator = np.random.default_rng(seed)
        return [_random(generator, tensor.dtype, tensor.shape) for tensor in self.graph.inputs]


def layers_of(model: compiler.Model, target: compiler.Target) -> list[ModelLayer]:
    """Return the layers of a model with several implementations; the target's tuning choices are ignored."""
    target = replace(target, tuned=())
    graph = graph_of(model, target)
    variants = _kernel_variants(model, graph, target)
    layers: dict[str, ModelLayer] = {}
    for number, step in _function_steps(graph):
        function = graph.functions[step.function]
        name = layer_of(function)
        if name in layers:
            layers[name] = replace(layers[name], times=layers[name].times + 1)
            continue
        kernel = _kernel_of(graph, number)
        kernels = {
            other: _extract(variant, variant.steps[number])
            for other, variant in variants.items()
            if other not in (kernel, "") and _kernel_of(variant, number) == other
        }
        if name and (kernels or LAYER not in (function.attrs or {})):
            tensors = {"buffer": graph.buffers, "output": graph.outputs}
            outputs = (tensors.get(result.kind, graph.states)[result.number] for result in step.writes)
            makes = ", ".join(tensor.name for tensor in outputs)
            layers[name] = ModelLayer(name, makes, 1, _extract(graph, step), kernels, kernel, target)
    return list(layers.values())


def _kernel_variants(model: compiler.Model, graph: Graph, target: compiler.Target) -> dict[str, Graph]:
    functions = [graph.functions[step.function] for _, step in _function_steps(graph)]
    layers = {str(function.attrs[LAYER]) for function in functions if function.attrs and LAYER in function.attrs}
    names = dict.fromkeys(kernel.name for kernel in KERNELS if kernel.extensions <= frozenset(target.extensions))
    return {
        name: graph_of(model, replace(target, tuned=tuple((layer, name) for layer in layers)))
        for name in (names if layers else {})
    }


def _function_steps(graph: Graph) -> Iterator[tuple[int, Step]]:
    return ((number, step) for number, step in enumerate(graph.steps) if step.function in graph.functions)


def _kernel_of(graph: Graph, number: int) -> str:
    attributes = graph.functions[graph.steps[number].function].attrs or {}
    return str(attributes[KERNEL]) if KERNEL in attributes else ""


def _extract(graph: Graph, step: Step) -> Graph:
    """Return a step as a graph: its variable operands become inputs, its results outputs."""
    function = graph.functions[step.function]
    tensors = [
        compiler.Tensor(f"t{number}", tuple(int(extent) for extent in parameter.ty.shape), element_type(parameter))
        for number, parameter in enumerate(function.params)
    ]
    inputs: list[compiler.Tensor] = []
    constants: list[npt.NDArray[Any]] = []
    reads: list[Location] = []
    for location, tensor in zip(step.reads, tensors, strict=False):
        if location.kind == "constant":
            reads.append(Location("constant", len(constants)))
            constants.append(graph.constants[location.number])
        else:
            reads.append(Location("input", len(inputs)))
            inputs.append(tensor)
    outputs = tuple(tensors[len(step.reads) :])
    writes = tuple(Location("output", number) for number in range(len(outputs)))
    steps = (Step(_ONLY, tuple(reads), writes),)
    return Graph(tuple(inputs), (), tuple(constants), steps, outputs, {_ONLY: function})


def _random(generator: np.random.Generator, dtype: str, shape: Sequence[int]) -> npt.NDArray[Any]:
    if dtype.startswith("float"):
        return generator.standard_normal(shape).astype(dtype)
    if dtype in _FULL_RANGE:
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return generator.integers(0, 2, shape).astype(dtype)


@dataclass
class _State:
    layer: ModelLayer
    default: int
    outputs: bytes
    counts: dict[tuple[Kind, str], int | None]
    batches: int = 0
    exhausted: bool = False
    search: object = None

    @property
    def best(self) -> tuple[int, Kind]:
        counts = [(count, kind) for (kind, _), count in self.counts.items() if count is not None]
        return min([(self.default, "default"), *counts], key=lambda row: row[0])


@dataclass(frozen=True)
class Progress:
    """Progress of a search; ``before`` and ``best`` are counts without tuning and of the best candidate."""

    measured: int
    trials: int
    layer: ModelLayer
    before: int
    best: int


@dataclass
class Tuner:
    """A search for the fastest candidate of each layer."""

    layers: Sequence[ModelLayer]
    measurer: Measurer
    origin: Origin
    log: Path
    known: Sequence[LogEntry]
    seed: int = 0
    entries: list[LogEntry] = field(default_factory=list)
    _number: int = 0
    _states: list[_State] = field(default_factory=list)

    @property
    def unit(self) -> str:
        return self.entries[-1].unit if self.entries else ""

    def rows(self) -> list[tuple[ModelLayer, int, int, Kind]]:
        """Return each measured layer, its count without tuning, its best count, and that candidate's kind."""
        return [(state.layer, state.default, *state.best) for state in self._states]

    def run(self, trials: int) -> Iterator[Progress]:
        """Measure ``trials`` candidates; yield progress after each batch."""
        self.entries = list(self.known)
        states = self._states = self._measure_defaults()
        spent = 0
        for state in states:
            names = [name for name in state.layer.kernels if ("kernel", name) not in state.counts][: trials - spent]
            self._measure(state, "kernel", names)
            spent += len(names)
            if names:
                yield self._progress(spent, trials, state)
        unfinished = [state for state in states if not state.layer.kernel]
        while spent < trials and (unfinished := [state for state in unfinished if not state.exhausted]):
            # Prefer slow layers with few batches.
            state = max(unfinished, key=lambda state: state.best[0] * state.layer.times / (1 + state.batches))
            count = self._measure_schedules(state, trials - spent)
            spent += count
            if count:
                yield self._progress(spent, trials, state)

    def _progress(self, trials_done: int, trials: int, state: _State) -> Progress:
        return Progress(trials_done, trials, state.layer, state.default, state.best[0])

    def _measure_defaults(self) -> list[_State]:
        """Measure each layer without tuning; layers that cannot be measured are left out."""
        candidates = (Candidate(self._library(layer, "default", ""), layer.inputs(self.seed)) for layer in self.layers)
        states = []
        for layer, result in zip(self.layers, self.measurer.measure(candidates), strict=True):
            self._log(layer, "default", layer.kernel, result)
            if not result.counts:
                continue
            counts: dict[tuple[Kind, str], int | None] = {
                (entry.kind, entry.choice): entry.count
                for entry in self.known
                if entry.layer == layer.name and entry.unit == result.unit and entry.kind != "default"
            }
            states.append(_State(layer, result.count, result.outputs, counts))
        return states

    def _measure_schedules(self, state: _State, limit: int) -> int:
        """Measure a batch of schedules of a layer; return the number of new ones."""
        if state.search is None:
            state.search = ScheduleSearch(state.layer.function, self.seed, _BATCH)
            for (_, trace), count in state.counts.items():
                if count is not None:
                    state.search.remember(trace, count)
        assert isinstance(state.search, ScheduleSearch)
        trials = state.search.ask()
        state.exhausted = not trials
        state.batches += 1
        traces = dict.fromkeys(trial.trace for trial in trials if ("trace", trial.trace) not in state.counts)
        new = list(traces)[:limit]
        self._measure(state, "trace", new)
        state.search.tell(trials, [state.counts.get(("trace", trial.trace)) for trial in trials])
        return len(new)

    def _measure(self, state: _State, kind: Kind, choices: Sequence[str]) -> None:
        """Measure candidates of a layer, reject those whose outputs differ, and log each at once."""
        compiled: list[str] = []

        def record(choice: str, result: CandidateResult) -> None:
            if result.counts and result.outputs != state.outputs:
                result = CandidateResult(result.unit, (), b"", _OTHER_BITS)
            state.counts[kind, choice] = self._log(state.layer, kind, choice, result)

        def compile_candidates() -> Iterator[Candidate]:
            inputs = state.layer.inputs(self.seed)
            for choice in choices:
                try:
                    candidate = Candidate(self._library(state.layer, kind, choice), inputs)
                except errors.UtvmError as error:
                    record(choice, CandidateResult("", (), b"", error.message.splitlines()[0]))
                    continue
                compiled.append(choice)
                yield candidate

        for number, result in enumerate(self.measurer.measure(compile_candidates())):
            record(compiled[number], result)

    def _library(self, layer: ModelLayer, kind: Kind, choice: str) -> compiler.Library:
        self._number += 1
        return layer.library(f"c{self._number}", kind, choice)

    def _log(self, layer: ModelLayer, kind: Kind, choice: str, result: CandidateResult) -> int | None:
        entry = LogEntry.model_validate(
            {
                **self.origin.model_dump(),
                "layer": layer.name,
                "kind": kind,
                "choice": choice,
                "unit": result.unit or self.unit,
                "counts": result.counts,
                "error": result.error,
            }
        )
        append(self.log, [entry])
        self.entries.append(entry)
        return entry.count


# TuneContext imports the tensor intrinsics of all accelerators, which takes half a minute to parse.
sys.modules.setdefault("tvm.s_tir.tensor_intrin", types.ModuleType("tvm.s_tir.tensor_intrin"))

from tvm.s_tir import meta_schedule  # noqa: E402  (after the stub above)
from tvm.s_tir.meta_schedule import mutator, postproc, schedule_rule  # noqa: E402


@dataclass(frozen=True)
class Trial:
    """A schedule to measure: its trace as JSON, and TVM's candidate."""

    trace: str
    candidate: Any


class ScheduleSearch:
    """Evolutionary search of a function's schedule: random ones first, then mutations of the best."""

    def __init__(self, function: Any, seed: int, batch: int) -> None:
        self._function = function
        self._module = tvm.IRModule({"main": subject(function)})
        self._database = meta_schedule.database.MemoryDatabase()
        self._workload = self._database.commit_workload(self._module)
        self._arguments = meta_schedule.arg_info.ArgInfo.from_prim_func(self._module["main"])
        self._context = meta_schedule.TuneContext(
            self._module,
            target=C_TARGET,
            space_generator=_space(),
            search_strategy=meta_schedule.search_strategy.EvolutionarySearch(
                population_size=_POPULATION, init_min_unmeasured=min(_POPULATION // 2, batch)
            ),
            rand_state=seed + 1,  # TVM's seeds begin at 1
            num_threads=1,
        )
        self._context.pre_tuning(
            _ALL, batch, database=self._database, cost_model=meta_schedule.cost_model.RandomModel(seed=seed)
        )

    def ask(self) -> list[Trial]:
        """Return the next batch of schedules; empty at the end of the search."""
        candidates = self._context.generate_measure_candidates() or ()
        traces = (json.dumps(_plain(candidate.sch.trace.as_json()), separators=(",", ":")) for candidate in candidates)
        return list(map(Trial, traces, candidates))

    def tell(self, trials: Sequence[Trial], counts: Sequence[int | None]) -> None:
        """Report the counts of a batch; None for rejected schedules."""
        results = []
        for trial, count in zip(trials, counts, strict=True):
            seconds = None if count is None else [float(count)]
            results.append(meta_schedule.runner.RunnerResult(seconds, None if seconds else "cannot be taken"))
            self._commit(trial.candidate.sch.trace, seconds or [1e10])
        self._context.notify_runner_results([trial.candidate for trial in trials], results)

    def _commit(self, trace: Any, seconds: list[float]) -> None:
        record = meta_schedule.database.TuningRecord(trace, self._workload, seconds, C_TARGET, self._arguments)
        self._database.commit_tuning_record(record)

    def remember(self, trace: str, count: int) -> None:
        """Add a schedule of a log as a starting point; raises CompileError if it does not fit the function."""
        self._commit(plan_of(self._function, trace).trace, [float(count)])


def _space() -> Any:
    rules = [
        schedule_rule.AutoInline(
            into_producer=False,
            into_consumer=True,
            inline_const_tensor=True,
            disallow_if_then_else=True,
            require_injective=True,
            require_ordered=True,
            disallow_op=["tirx.exp"],
        ),
        schedule_rule.MultiLevelTiling(
            structure=_TILES,
            tile_binds=None,
            max_innermost_factor=_INNERMOST,
            vector_load_lens=None,
            reuse_read=None,
            reuse_write=schedule_rule.ReuseType(req="may", levels=[1, 2], scope="global"),
        ),
        schedule_rule.ParallelizeVectorizeUnroll(
            max_jobs_per_core=-1, max_vectorize_extent=-1, unroll_max_steps=list(_UNROLLED), unroll_explicit=True
        ),
        schedule_rule.RandomComputeLocation(),
    ]
    steps = (postproc.DisallowDynamicLoop, postproc.RewriteParallelVectorizeUnroll, postproc.RewriteReductionBlock)
    chances = {mutator.MutateTileSize: 0.85, mutator.MutateUnroll: 0.1, mutator.MutateComputeLocation: 0.05}
    return meta_schedule.space_generator.PostOrderApply(
        sch_rules=rules,
        postprocs=[step() for step in steps],
        mutator_probs={mutation(): chance for mutation, chance in chances.items()},
    )


def _plain(value: Any) -> Any:
    if isinstance(value, int | float | str) or value is None:
        return value
    if isinstance(value, tvm.tirx.IntImm | tvm.tirx.FloatImm):
        return value.value
    return [_plain(element) for element in value]
