# SPDX-License-Identifier: Apache-2.0
"""The search: choose the next candidate of each layer, measure it, log it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from utvm.compiler import Library
from utvm.errors import UtvmError
from utvm.tuning.layers import ModelLayer
from utvm.tuning.log import Kind, LogEntry, Origin, append
from utvm.tuning.measure import Candidate, CandidateResult, Measurer

_BATCH = 16  # Candidates in an image, and between two updates of the best.
_OTHER_BITS = "its result differs from that without tuning"


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
    """Progress of a search.

    Attributes:
        before, best: its count without tuning, and the best count.
    """

    measured: int
    trials: int
    layer: ModelLayer
    before: int
    best: int


@dataclass
class Tuner:
    """A search for the fastest candidate of each layer.

    Attributes:
        log: file to which each candidate is appended as soon as it was measured.
        known: entries of the log, which are not measured again.
    """

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
        """Each measured layer, its count without tuning, its best count, and the kind of that candidate."""
        return [(state.layer, state.default, *state.best) for state in self._states]

    def run(self, trials: int) -> Iterator[Progress]:
        """Measure ``trials`` candidates; yield progress after each batch."""
        self.entries = list(self.known)
        states = self._states = self._measure_defaults()
        done = 0
        for state in states:
            names = [name for name in state.layer.kernels if ("kernel", name) not in state.counts][: trials - done]
            self._measure(state, "kernel", names)
            done += len(names)
            if names:
                yield self._progress(done, trials, state)
        open_ = [state for state in states if not state.layer.kernel]
        while done < trials and (open_ := [state for state in open_ if not state.exhausted]):
            # Prefer slow layers with few batches.
            state = max(open_, key=lambda state: state.best[0] * state.layer.times / (1 + state.batches))
            count = self._measure_schedules(state, trials - done)
            done += count
            if count:
                yield self._progress(done, trials, state)

    def _progress(self, done: int, trials: int, state: _State) -> Progress:
        return Progress(done, trials, state.layer, state.default, state.best[0])

    def _measure_defaults(self) -> list[_State]:
        """Measure each layer without tuning; layers that cannot be measured are left out."""
        candidates = (
            Candidate(self._library(layer, "default", ""), layer.inputs(self.seed)) for layer in self.layers
        )
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
        # Slow to import, and needed only for layers without a kernel.
        from utvm.tuning.space import ScheduleSearch

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

        def keep(choice: str, result: CandidateResult) -> None:
            if result.counts and result.outputs != state.outputs:
                result = CandidateResult(result.unit, (), b"", _OTHER_BITS)
            state.counts[kind, choice] = self._log(state.layer, kind, choice, result)

        def compile_candidates() -> Iterator[Candidate]:
            inputs = state.layer.inputs(self.seed)
            for choice in choices:
                try:
                    candidate = Candidate(self._library(state.layer, kind, choice), inputs)
                except UtvmError as error:
                    keep(choice, CandidateResult("", (), b"", error.message.splitlines()[0]))
                    continue
                compiled.append(choice)
                yield candidate

        for number, result in enumerate(self.measurer.measure(compile_candidates())):
            keep(compiled[number], result)

    def _library(self, layer: ModelLayer, kind: Kind, choice: str) -> Library:
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
