# SPDX-License-Identifier: Apache-2.0
"""Search space of operators without a kernel of utvm: TVM's MetaSchedule with restricted rules.

No schedule changes a result bit: sums keep their order, so no reduction is split or vectorised.
"""

import json
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm

from utvm.compiler.schedule.loops import plan_of, subject
from utvm.compiler.schedule.lower import C_TARGET

# TuneContext imports the tensor intrinsics of all accelerators, which takes half a minute to parse.
sys.modules.setdefault("tvm.s_tir.tensor_intrin", types.ModuleType("tvm.s_tir.tensor_intrin"))

from tvm.s_tir import meta_schedule  # noqa: E402  (after the stub above)
from tvm.s_tir.meta_schedule import mutator, postproc, schedule_rule  # noqa: E402

_TILES = "SSRS"
"""Two levels of tiles, the reduction, the innermost tile: splitting the reduction would change floats."""
_UNROLLED = (0, 16, 64)
_INNERMOST = 64
_POPULATION = 32
_ALL = 1 << 20


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
