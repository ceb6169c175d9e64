# SPDX-License-Identifier: Apache-2.0
"""A project's ``utvm.yaml`` and suites: its boards, its models, and their limits.

A relative limit is a percentage above the baseline, a file in the project's repository.
"""

import dataclasses
import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator, model_validator

from utvm import compiler, errors, selection
from utvm.base.storage.arrays import read_arrays
from utvm.base.storage.config import Record, load_yaml
from utvm.hil.results import CaseResult, ModelResult, Outcome
from utvm.history.values import LIMITED
from utvm.paths import DATA, PROJECT_FILE, project, work
from utvm.provenance.location import LocationKind, current_kind

BUNDLED = DATA / "hil_tests"


@dataclass(frozen=True)
class SelectedSuites:
    """Suites of one origin, as pytest arguments."""

    root: Path
    own: bool
    paths: tuple[str, ...]


def suite_names() -> tuple[str, ...]:
    files = [path for folder in _suite_folders() for path in folder.glob("test_*.py")]
    return tuple(sorted({path.stem.removeprefix("test_") for path in files}))


def select_suites(suites: Sequence[str]) -> SelectedSuites:
    """Find suites by name, or by file or folder path; each may end in ``::TEST``.

    The project's own suites take precedence. Without names, returns all of the project's own suites, else all
    bundled ones.
    """
    # The project's own folder comes first.
    selected = [_find_suite(suite) for suite in suites] or [(_suite_folders()[0], "")]
    own = {not path.is_relative_to(BUNDLED) for path, _ in selected}
    if len(own) > 1:
        raise errors.ConfigError("your own suites and those of utvm need separate runs", "name suites of one kind")
    root = _common_root([path for path, _ in selected]) if own == {True} else DATA
    return SelectedSuites(root, own == {True}, tuple(f"{path.relative_to(root)}{test}" for path, test in selected))


def _common_root(paths: Sequence[Path]) -> Path:
    current = project()
    if current and all(path.is_relative_to(current) for path in paths):
        return current
    return Path(os.path.commonpath([path if path.is_dir() else path.parent for path in paths]))


def _suite_folders() -> tuple[Path, ...]:
    own = project()
    return (own / "hil", BUNDLED) if own and (own / "hil").is_dir() else (BUNDLED,)


def _find_suite(suite: str) -> tuple[Path, str]:
    name, colons, test = suite.partition("::")
    if "/" in name or name.endswith(".py"):
        for folder in (Path.cwd(), project() or Path.cwd()):
            if (path := (folder / name).resolve()).exists():
                return path, colons + test
        raise errors.ConfigError(
            f"{name}: there is no such suite", "--suite takes names, or paths of files and folders"
        )
    for folder in _suite_folders():
        if (path := folder / f"test_{name}.py").is_file():
            return path, colons + test
    known = suite_names()
    hint = errors.did_you_mean(name, known, f"suites: {', '.join(known)}")
    raise errors.ConfigError(f"there is no suite {name!r}", hint)


_HINT = "docs/own-project.md describes utvm.yaml"


class Entry(Record, selection.BoardSelection):  # type: ignore[misc]  # mypy cannot see that records are frozen
    """One board of the list.

    ``reruns`` is how often a job without a verdict is repeated; a failed test is never repeated.
    ``board`` is a name, or a board folder's path relative to the list. ``minutes`` limits the health check and the
    suites each, so that a hanging board does not block the night. ``count`` and ``tags`` select boards of a farm.
    """

    board: Annotated[str, Field(min_length=1)] = Field()
    suites: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    place: LocationKind = Field(default_factory=current_kind)
    minutes: Annotated[float, Field(gt=0)] = 60.0
    tags: str = ""
    latency_us: ClassVar[int] = 0  # type: ignore[misc]
    count: Annotated[int, Field(ge=1)] = 1
    reruns: Annotated[int, Field(ge=0, le=5)] = 0

    @model_validator(mode="after")
    def _farms_have_many(self) -> "Entry":
        if self.place != "farm" and (self.tags or self.count != 1):
            raise ValueError("tags and count are for boards of a farm: place: farm")
        if self.place == "farm" and self.reruns:
            raise ValueError("a job in a farm is repeated on another board, once: leave reruns out")
        return self

    @field_validator("suites")
    @classmethod
    def _suites_exist(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        try:
            select_suites(value or ())
        except errors.ConfigError as error:
            raise ValueError(f"{error.message}; {error.hint}") from error
        return value


Share = Annotated[str, Field(pattern=r"^\+\d+(\.\d+)? ?%$")]
Maximum = Annotated[int, Field(gt=0)]


class Limits(Record):
    """A model and its limits on every board: minimum accuracy (0 to 1), maximum instructions, image bytes and
    milliseconds.

    ``+1 %`` instead of a number is a limit relative to the baseline.
    """

    file: Path
    samples: Path
    accuracy: Annotated[float, Field(ge=0, le=1)] | None = None
    instructions: Maximum | Share | None = None
    flash: Maximum | Share | None = None
    ram: Maximum | Share | None = None
    ms: Annotated[float, Field(gt=0)] | None = None

    def relative(self) -> dict[str, str]:
        return {name: limit for name in LIMITED if isinstance(limit := getattr(self, name), str)}


class Quarantine(Record):
    """When a farm removes a board from service, and when it returns.

    Attributes:
        bad_after: consecutive runs without a verdict.
        well_after: consecutive health checks passed.
    """

    bad_after: Annotated[int, Field(ge=1)] = 3
    well_after: Annotated[int, Field(ge=1)] = 1


class QuarantinedTest(Record):
    """A test, ``SUITE::TEST`` as in reports, whose failures are excused up to and including a date."""

    test: Annotated[str, Field(pattern="::")]
    owner: Annotated[str, Field(min_length=1)]
    until: datetime.date
    why: str = ""

    def excuse(self, case: CaseResult, today: datetime.date) -> CaseResult:
        """Return a failed case of the test as skipped; after the last day, with a note."""
        if case.outcome is not Outcome.FAILED or self.test not in (case.id, case.id.partition("[")[0]):
            return case
        if today > self.until:
            note = f"its quarantine, by {self.owner}, ended on {self.until}"
            return dataclasses.replace(case, message=f"{case.message}\n{note}")
        note = f"in quarantine until {self.until}, by {self.owner}{self.why and f': {self.why}'}"
        return dataclasses.replace(case, outcome=Outcome.SKIPPED, message=f"{note}; it failed: {case.message}")


class ProjectFile(Record):
    """``utvm.yaml``, or a nightly list of boards."""

    boards: Annotated[tuple[Entry, ...], Field(min_length=1)]
    models: dict[Annotated[str, Field(pattern=r"^\w+$")], Limits] = Field({})
    history: Path = Path("build/history.sqlite")
    farm: Quarantine = Quarantine()
    quarantine: tuple[QuarantinedTest, ...] = ()


@dataclass(frozen=True)
class ProjectModel:
    """A model of the project, as passed to suites by the fixture ``project_model``."""

    name: str
    limits: Limits
    folder: Path

    def load(self) -> compiler.Model:
        return compiler.load(self.folder / self.limits.file)

    def samples(self) -> tuple[list[npt.NDArray[Any]], list[int] | None]:
        path = self.folder / self.limits.samples
        arrays = read_arrays(str(path))
        if "x" not in arrays or not arrays["x"].ndim:
            hint = 'numpy.savez(file, x=samples, labels=classes) writes it; "labels" may be left out'
            raise errors.ConfigError(f"{path}: has no array x", hint)
        labels = arrays["labels"].tolist() if "labels" in arrays else None
        return [row[np.newaxis] for row in arrays["x"]], labels

    def broken(self, result: ModelResult) -> list[str]:
        messages = []
        figures, limits = result.figures, self.limits
        if limits.accuracy is not None and not figures.get("accuracy", 0) >= limits.accuracy:
            messages.append(f"accuracy is {figures.get('accuracy', 'not known')}, and the limit is {limits.accuracy}")
        for name, figure in LIMITED.items():
            value, maximum = figures.get(figure), getattr(limits, name)
            if isinstance(maximum, int | float) and value is not None and value > maximum:
                unit = " bytes" if figure.endswith("bytes") else ""
                messages.append(f"{name} is {value}{unit}, and the limit is {maximum}")
        return [f"{self.name}: {message}" for message in messages]


def load_project() -> ProjectFile | None:
    folder = project()
    return load_yaml(folder / PROJECT_FILE, ProjectFile, _HINT) if folder else None


def quarantine() -> Quarantine:
    """Return the project's quarantine rules, or the defaults; raises as :func:`load_project`."""
    content = load_project()
    return content.farm if content else Quarantine()


def history_file() -> Path:
    """Return the project's history file, or the default beside the reports."""
    folder, content = project(), load_project()
    return folder / content.history if folder and content else work() / "history.sqlite"


def project_models() -> Sequence[ProjectModel]:
    folder, content = project(), load_project()
    if folder is None or content is None:
        return ()
    return tuple(ProjectModel(name, limits, folder) for name, limits in content.models.items())
