# SPDX-License-Identifier: Apache-2.0
"""A project of one's own: what its ``utvm.yaml`` says of boards and models."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator, model_validator

from utvm import compiler
from utvm.base.storage.arrays import read_arrays
from utvm.base.storage.config import Record, load_yaml
from utvm.compiler import Model
from utvm.environment.location import Kind, current_kind
from utvm.errors import ConfigError
from utvm.hil import found
from utvm.hil.results import ModelResult
from utvm.paths import PROJECT_FILE, project, work
from utvm.selection import BoardSelection

_HINT = "docs/own-project.md says what utvm.yaml holds"


class Entry(Record, BoardSelection):  # type: ignore[misc]  # mypy cannot see that records are frozen
    """One board of the list.

    ``board`` is a name, or the path of a board folder, from where the list is. ``minutes`` is what the health
    check and the suites may each take: a board that hangs must not hold up the night. Of a farm, it may be
    ``count`` boards, and those with some ``tags``.
    """

    board: Annotated[str, Field(min_length=1)] = Field()
    suites: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    place: Kind = Field(default_factory=current_kind)
    minutes: Annotated[float, Field(gt=0)] = 60.0
    tags: str = ""
    count: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def _farms_have_many(self) -> "Entry":
        if self.place != "farm" and (self.tags or self.count != 1):
            raise ValueError("tags and count are for boards of a farm: place: farm")
        return self

    @field_validator("suites")
    @classmethod
    def _suites_exist(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        try:
            found.select(value or ())
        except ConfigError as error:
            raise ValueError(f"{error.message}; {error.hint}") from error
        return value


RELATIVE = {"instructions": "instructions", "flash": "flash_bytes", "ram": "ram_bytes"}
"""Limits that may be relative, and which figure each is of."""

Share = Annotated[str, Field(pattern=r"^\+\d+(\.\d+)? ?%$")]
Most = Annotated[int, Field(gt=0)]


class Limits(Record):
    """A model and what is demanded of it on every board: right answers, of 1, and bytes that its image takes.

    Where there is ``+1 %`` instead of a number, it may be so much more than the baseline says.
    """

    file: Path
    samples: Path
    accuracy: Annotated[float, Field(ge=0, le=1)] | None = None
    instructions: Most | Share | None = None
    flash: Most | Share | None = None
    ram: Most | Share | None = None

    def relative(self) -> dict[str, str]:
        """Return the limits that are relative, by name."""
        return {name: limit for name in RELATIVE if isinstance(limit := getattr(self, name), str)}


class Quarantine(Record):
    """When a board of this host's is taken out of a farm, and when it comes back.

    Attributes:
        bad_after: so many runs in a row without a verdict.
        well_after: so many health checks in a row that pass.
    """

    bad_after: Annotated[int, Field(ge=1)] = 3
    well_after: Annotated[int, Field(ge=1)] = 1


class ProjectFile(Record):
    """What ``utvm.yaml`` says, and a list of boards for the night."""

    boards: Annotated[tuple[Entry, ...], Field(min_length=1)]
    models: dict[Annotated[str, Field(pattern=r"^\w+$")], Limits] = Field({})
    history: Path = Path("build/history.sqlite")
    farm: Quarantine = Quarantine()


@dataclass(frozen=True)
class ProjectModel:
    """A model of the project, as a suite has it from the fixture ``project_model``."""

    name: str
    limits: Limits
    folder: Path

    def load(self) -> Model:
        """Read the model; raises UtvmError as :func:`utvm.compiler.load`."""
        return compiler.load(self.folder / self.limits.file)

    def samples(self) -> tuple[list[npt.NDArray[Any]], list[int] | None]:
        """Return what it is tried on, and the right classes where they are known."""
        path = self.folder / self.limits.samples
        arrays = read_arrays(str(path))
        if "x" not in arrays or not arrays["x"].ndim:
            hint = 'numpy.savez(file, x=samples, labels=classes) writes it; "labels" may be left out'
            raise ConfigError(f"{path}: has no array x", hint)
        labels = arrays["labels"].tolist() if "labels" in arrays else None
        return [row[np.newaxis] for row in arrays["x"]], labels

    def broken(self, result: ModelResult) -> list[str]:
        """Return which of its limits are not kept, in words; none where it is as good and as small as demanded."""
        said = []
        figures, limits = result.figures, self.limits
        if limits.accuracy is not None and not figures.get("accuracy", 0) >= limits.accuracy:
            said.append(
                f"accuracy is {figures.get('accuracy', 'not known')}, and at least {limits.accuracy} is asked"
            )
        for name, figure in RELATIVE.items():
            taken, most = figures.get(figure), getattr(limits, name)
            if isinstance(most, int) and taken is not None and taken > most:
                unit = " bytes" if figure.endswith("bytes") else ""
                said.append(f"{name} is {taken}{unit}, and at most {most} is asked")
        return [f"{self.name}: {each}" for each in said]


def load() -> ProjectFile | None:
    """Read the current project's file; None where there is no project."""
    folder = project()
    return load_yaml(folder / PROJECT_FILE, ProjectFile, _HINT) if folder else None


def quarantine() -> Quarantine:
    """Return the project's rules for boards that go bad, else the usual ones; raises as :func:`load`."""
    content = load()
    return content.farm if content else Quarantine()


def history_file() -> Path:
    """Return the file of the history: the project's, else one beside the reports; raises as :func:`load`."""
    folder, content = project(), load()
    return folder / content.history if folder and content else work() / "history.sqlite"


def models() -> Sequence[ProjectModel]:
    """Return the models of the current project; raises as :func:`load`."""
    folder, content = project(), load()
    if folder is None or content is None:
        return ()
    return tuple(ProjectModel(name, limits, folder) for name, limits in content.models.items())
