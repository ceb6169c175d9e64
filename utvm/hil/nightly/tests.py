# SPDX-License-Identifier: Apache-2.0
"""The tests of a night, each once: on which boards it ended how."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from utvm.hil.nightly.results import BoardResult
from utvm.hil.results import Outcome

_WORST_FIRST = (
    Outcome.INFRASTRUCTURE,
    Outcome.ERROR,
    Outcome.FAILED,
    Outcome.NOT_RUN,
    Outcome.PASSED,
    Outcome.SKIPPED,
)


@dataclass(frozen=True)
class TestOfNight:
    """One test.

    Attributes:
        id: as in all reports.
        boards: the labels of the boards on which it ended so.
    """

    __test__ = False  # For pytest, which looks at names.

    id: str
    boards: Mapping[Outcome, Sequence[str]]

    @property
    def suite(self) -> str:
        """The suite that it is in."""
        return self.id.partition("::")[0]

    @property
    def name(self) -> str:
        """Its name inside its suite."""
        return self.id.partition("::")[2] or self.id

    @property
    def outcome(self) -> Outcome:
        """The worst of its outcomes; it passed where it did somewhere, and was skipped elsewhere."""
        return next(outcome for outcome in _WORST_FIRST if outcome in self.boards)

    @property
    def spoken(self) -> str:
        """Where it ended how; boards are named where it did not pass."""
        said = []
        for outcome in _WORST_FIRST:
            where = self.boards.get(outcome, ())
            if where and outcome is Outcome.PASSED:
                said.append(f"passed on {len(where)}")
            elif where:
                said.append(f"{outcome.value} on {', '.join(where)}")
        return "; ".join(said)


def tests_of(results: Sequence[BoardResult]) -> list[TestOfNight]:
    """Return the tests that any board's report has, in the order of the first that has them."""
    found: dict[str, dict[Outcome, list[str]]] = {}
    for result in results:
        for test in result.content["tests"] if result.content else ():
            found.setdefault(test["id"], {}).setdefault(Outcome(test["outcome"]), []).append(result.label)
    return [TestOfNight(name, boards) for name, boards in found.items()]
