# SPDX-License-Identifier: Apache-2.0
"""The search itself: which candidate of which layer is measured next, and what is made of the answer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from utvm.compiler import Library
from utvm.errors import UtvmError
from utvm.tuning.layers import ModelLayer
from utvm.tuning.log import Kind, LogEntry, Origin, append
from utvm.tuning.measure import Candidate, CandidateResult, Measurer

_BATCH = 16  # Candidates of one image, and between two looks at what is best.
_OTHER_BITS = "its result differs from that without tuning"


@dataclass
class _State:
    """What is known of a layer during a search."""

    layer: ModelLayer
    default: int
    outputs: bytes
    counts: dict[tuple[Kind, str], int | None]
    asked: int = 0
    exhausted: bool = False
    search: object = None

    @property
    def best(self) -> tuple[int, Kind]:
        found = [(count, kind) for (kind, _), count in self.counts.items() if count is not None]
        return min([(self.default, "default"), *found], key=lambda each: each[0])


@dataclass(frozen=True)
class Progress:
    """How far a search is.

    Attributes:
        measured: candidates so far, of ``trials``.
        layer: of which some were measured last.
        before, best: what it took without tuning, and takes by the best.
    """

    measured: int
    trials: int
    layer: ModelLayer
    before: int
    best: int


@dataclass
class Tuner:
    """A search for the best candidate of each layer.

    Attributes:
        layers: of the model.
        measurer: runs candidates.
        origin: what is written of each.
        log: where each is written as soon as it was measured.
        known: what the log has already; it is not measured again.
        seed: of what is random.
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
        """Of all counts."""
        return self.entries[-1].unit if self.entries else ""

    def rows(self) -> list[tuple[ModelLayer, int, int, Kind]]:
        """Return each layer that was measured, its count without tuning and its least, and what takes that."""
        return [(state.layer, state.default, *state.best) for state in self._states]

    def run(self, trials: int) -> Iterator[Progress]:
        """Measure so many candidates, and tell after some of them how far it is."""
        self.entries = list(self.known)
        states = self._states = self._defaults()
        done = 0
        for state in states:
            names = [each for each in state.layer.kernels if ("kernel", each) not in state.counts]
            chosen = names[: trials - done]
            self._measure(state, "kernel", chosen)
            done += len(chosen)
            if chosen:
                yield self._progress(done, trials, state)
        open_ = [state for state in states if not state.layer.kernel]
        while done < trials and (open_ := [state for state in open_ if not state.exhausted]):
            # What takes longest, and was looked at least.
            state = max(open_, key=lambda each: each.best[0] * each.layer.times / (1 + each.asked))
            count = self._searched(state, trials - done)
            done += count
            if count:
                yield self._progress(done, trials, state)

    def _progress(self, done: int, trials: int, state: _State) -> Progress:
        return Progress(done, trials, state.layer, state.default, state.best[0])

    def _defaults(self) -> list[_State]:
        """Measure each layer as it is without tuning; leave those out that cannot be."""
        asked = (Candidate(self._library(each, "default", ""), each.inputs(self.seed)) for each in self.layers)
        states = []
        for layer, measured in zip(self.layers, self.measurer.measure(asked), strict=True):
            self._note(layer, "default", layer.kernel, measured)
            if not measured.counts:
                continue
            counts: dict[tuple[Kind, str], int | None] = {
                (each.kind, each.choice): each.count
                for each in self.known
                if each.layer == layer.name and each.unit == measured.unit and each.kind != "default"
            }
            states.append(_State(layer, measured.count, measured.outputs, counts))
        return states

    def _searched(self, state: _State, room: int) -> int:
        """Measure schedules of one layer; return how many."""
        # It takes long to import, and is for operators without a kernel of ours.
        from utvm.tuning.space import ScheduleSearch

        if state.search is None:
            state.search = ScheduleSearch(state.layer.function, self.seed, _BATCH)
            for (_, trace), count in state.counts.items():
                if count is not None:
                    state.search.remember(trace, count)
        assert isinstance(state.search, ScheduleSearch)
        trials = state.search.ask()
        state.exhausted = not trials
        state.asked += 1
        new = list(dict.fromkeys(each.trace for each in trials if ("trace", each.trace) not in state.counts))[
            :room
        ]
        self._measure(state, "trace", new)
        state.search.tell(trials, [state.counts.get(("trace", each.trace)) for each in trials])
        return len(new)

    def _measure(self, state: _State, kind: Kind, choices: Sequence[str]) -> None:
        """Measure candidates of one layer, compare results with those without tuning, and log each at once."""
        ready: list[str] = []

        def keep(choice: str, each: CandidateResult) -> None:
            if each.counts and each.outputs != state.outputs:
                each = CandidateResult(each.unit, (), b"", _OTHER_BITS)
            state.counts[kind, choice] = self._note(state.layer, kind, choice, each)

        def made() -> Iterator[Candidate]:
            inputs = state.layer.inputs(self.seed)
            for choice in choices:
                try:
                    candidate = Candidate(self._library(state.layer, kind, choice), inputs)
                except UtvmError as error:
                    keep(choice, CandidateResult("", (), b"", error.message.splitlines()[0]))
                    continue
                ready.append(choice)
                yield candidate

        for number, each in enumerate(self.measurer.measure(made())):
            keep(ready[number], each)

    def _library(self, layer: ModelLayer, kind: Kind, choice: str) -> Library:
        self._number += 1
        return layer.library(f"c{self._number}", kind, choice)

    def _note(self, layer: ModelLayer, kind: Kind, choice: str, measured: CandidateResult) -> int | None:
        entry = LogEntry.model_validate(
            {
                **self.origin.model_dump(),
                "layer": layer.name,
                "kind": kind,
                "choice": choice,
                "unit": measured.unit or self.unit,
                "counts": measured.counts,
                "error": measured.error,
            }
        )
        append(self.log, [entry])
        self.entries.append(entry)
        return entry.count
