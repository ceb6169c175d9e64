# SPDX-License-Identifier: Apache-2.0
"""Generates docs/boards.md from the boards' files and measurements, for ``docs.site --pages``."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import jinja2
from pydantic import Field, model_validator

from utvm import boards, pages, paths
from utvm.base.storage import config, files
from utvm.base.text.templates import templates_of
from utvm.boards import Board
from utvm.boards.parts import NOTHING_VIRTUAL, Kind, MemoryRegion, Physical, SiliconPart, Virtual
from utvm.cli.output import OUT
from utvm.hil.figures import FIGURES, present_figures

MEASUREMENTS = paths.ROOT / "benchmarks" / "boards.json"
PAGE = paths.ROOT / "docs" / "boards.md"
_DRIVERS = {"openocd": "OpenOCD", "pyocd": "pyOCD"}


class MeasuredModel(config.Record):
    """A model that the suites ran on a board; ``figures`` are those of its report."""

    name: str
    executor: str
    figures: Mapping[str, Any]


class MeasuredBoard(config.Record):
    """Measurements of one board.

    ``suites_s`` is host wall time in seconds; ``memory_write_kib_s`` is None without a debug port.
    """

    date: str
    kind: Literal["virtual", "physical", "process"]
    passed: Annotated[int, Field(gt=0)]
    skipped: int
    suites_s: float
    memory_write_kib_s: float | None
    models: tuple[MeasuredModel, ...]
    tools: Mapping[str, str]

    @model_validator(mode="after")
    def _figures_are_those_of_the_kind(self) -> "MeasuredBoard":
        known = {figure.name for figure in FIGURES if figure.only in ("", self.kind)}
        for model in self.models:
            for name in model.figures:
                is_untimed = name == "ms" and self.kind != "physical" and "modelled_cycles" not in model.figures
                if name not in known or is_untimed:
                    raise ValueError(f"a {self.kind} board has no figure {name!r}: {', '.join(sorted(known))}")
        return self


class Measurements(config.Record):
    """The data file; ``means`` describes each figure."""

    machine: str
    means: Mapping[str, str]
    boards: Mapping[str, MeasuredBoard]


@dataclass(frozen=True)
class _DescribedBoard:
    """A board on the page: rows of name and value, and its memory."""

    board: Board
    rows: tuple[tuple[str, str], ...]
    memory: tuple[MemoryRegion, ...]


def write_page(path: Path = PAGE) -> None:
    files.write_whole(path, page(MEASUREMENTS))
    OUT.print(f"{path.relative_to(paths.ROOT)}: {len(boards.project_names())} boards")


def page(measurements: Path) -> str:
    """Return the page's text from the data file."""
    measured = config.load_yaml(measurements, Measurements, "benchmarks/boards.py writes it")
    project_boards = [boards.load(name) for name in boards.project_names()]
    # Optional extras, which are not listed as lacking on other boards.
    extras = frozenset(f"accelerator {name}" for board in project_boards for name in board.accelerator)
    known = frozenset().union(*(board.capabilities for board in project_boards)) - extras
    models: dict[str, list[tuple[str, MeasuredModel]]] = {}
    # A board with settings was measured once per setting.
    names_of = {
        board.name: [name for name in measured.boards if name.partition(":")[0] == board.name]
        for board in project_boards
    }
    for name in itertools.chain.from_iterable(names_of.values()):
        for model in measured.boards[name].models:
            models.setdefault(model.name, []).append((name, model))
    environment = templates_of(jinja2.FileSystemLoader(Path(__file__).parent))
    environment.filters |= {"bytes": pages.format_bytes, "hex": lambda value: f"{value:#010x}"}
    return environment.get_template("boards.md.j2").render(
        figures=present_figures(model.figures for rows in models.values() for _, model in rows),
        measured=measured,
        dates=sorted({board.date for board in measured.boards.values()}),
        measured_of=names_of,
        boards=[_describe(board, known) for board in project_boards],
        models=models,
    )


def _describe(board: Board, known: frozenset[str]) -> _DescribedBoard:
    rows = [
        ("CPU", f"{board.cpu}, `{' '.join(board.cpu_row.flags)}`" if board.cpu_row.flags else board.cpu),
        ("toolchain", board.toolchain),
        ("cycle counter", f"{board.clock_hz:,} counts per second"),
    ]
    if not board.memory:
        rows.append(("description", "a process on this computer, driven by RPC"))
        return _DescribedBoard(board, (*rows, ("not on this board", _join(known))), ())
    layout = board.layout
    rows += [
        ("console", f"{board.line.name}, {board.line.baud:,} baud" if board.line else "none"),
        (
            "layout",
            f"code in {layout.code}, data in {layout.data}, stack of {pages.format_bytes(layout.stack_size)} in "
            f"{layout.stack}",
        ),
        *(
            (
                f"setting {name}",
                ", ".join(f"{value} (default)" if value == board.settings[name] else value for value in values),
            )
            for name, values in board.choices.items()
        ),
    ]
    rows += _hardware_tests(board)
    if board.physical:
        rows += [("physical", _probes(board.physical)), *_abilities(board, "physical", known)]
    if board.virtual != NOTHING_VIRTUAL:
        driver = _DRIVERS[board.physical.driver if board.physical else "openocd"]
        rows += [("virtual", _virtual(board.virtual, driver)), *_abilities(board, "virtual", known)]
    return _DescribedBoard(board, tuple(rows), board.memory)


def _hardware_tests(board: Board) -> list[tuple[str, str]]:
    never = ", ".join(part for part in get_args(SiliconPart) if part not in board.silicon)
    conditions = [(f"{part}: tested on hardware", words) for part, words in board.silicon.items()]
    return [*conditions, *([("not tested on hardware", f"{never} ([bring-up.md](bring-up.md))")] if never else [])]


def _probes(physical: Physical) -> str:
    probes = ", ".join(f"{probe.kind} {probe.vendor:04x}:{probe.product:04x}" for probe in physical.probes)
    return f"driven by {_DRIVERS[physical.driver]}, through {probes}"


def _virtual(virtual: Virtual, driver: str) -> str:
    if virtual.model or not virtual.emulator:
        return f"[a software model of ours](virtual-boards.md) of the chip and its probe, driven by {driver}"
    machine = f"`{virtual.emulator.program} -M {virtual.emulator.machine}`"
    if virtual.jtag:
        model = "[a software model of ours](virtual-boards.md) behind JTAG pins, driven by OpenOCD"
        return f"{model}; with `driver=qemu` emulated by QEMU ({machine}), without OpenOCD"
    return f"emulated by QEMU ({machine}), driven by its GDB stub without OpenOCD"


def _abilities(board: Board, kind: Kind, known: frozenset[str]) -> list[tuple[str, str]]:
    has = board.capabilities_of(kind)
    return [(f"{kind} board supports", _join(has)), (f"{kind} board lacks", _join(known - has))]


def _join(names: frozenset[str]) -> str:
    return ", ".join(sorted(names, key=str.lower)) or "nothing"
