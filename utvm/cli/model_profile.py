# SPDX-License-Identifier: Apache-2.0
"""What ``model.profile`` does: each operator's part of a run, as a table, a picture and folded stacks."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from utvm import boards
from utvm.base.storage.files import check_folder, write_whole
from utvm.base.text.quoting import printable
from utvm.boards.accelerators import accelerator_of
from utvm.cli.choices import InputChoice, JsonChoice
from utvm.cli.model_inputs import read_inputs
from utvm.cli.model_profile_estimate import check_counts_instructions, estimate_of, print_estimate
from utvm.cli.opening import check_counts, find, opened
from utvm.cli.output import OUT, check_json, logs_of, write_json
from utvm.compiler import Library
from utvm.errors import ConfigError
from utvm.firmware.estimate import check_pipeline
from utvm.pages import label_in, pages_of
from utvm.selection import BoardSelection
from utvm.session.profile import MeasuredStep, Profile, profile_of
from utvm.session.rpc import RpcSession

_WIDTH = 900.0  # Of the picture, in its units.
_COLOURS = 8  # Of the pages' style.


@dataclass(frozen=True)
class Flame:
    """A box of the flame picture: where it begins, how wide it is, in which row, and what it says."""

    x: float
    width: float
    row: int
    colour: str
    label: str
    hint: str


@dataclass(frozen=True)
class StepBar:
    """What a step needs of the arena: as wide as it takes, as high as it uses."""

    x: float
    width: float
    height: float
    hint: str


def profile_model(
    where: BoardSelection, asked: InputChoice, output: str, wanted: JsonChoice, estimate: bool = False
) -> None:
    """Run a model on a board once, step by step, and print and write what each step took.

    Args:
        output: folder in which the profile's folder is made.
        estimate: whether cycles are estimated, too.
    """
    check_folder(output or "build")
    check_json(wanted)
    found = find(where)
    check_counts(found)
    if estimate:
        check_pipeline(found.board.cpu_row)
    with opened(where, asked, logs_of("model.profile"), _log) as ready:
        if estimate:
            check_counts_instructions(ready.board.unit)
        inputs = read_inputs(ready.library, asked.input, asked.scale)
        OUT.print(ready.board.description)
        with RpcSession(ready.board, [ready.library]) as session:
            plain = session.run(ready.library.name, inputs)
            _, counts = session.profile(ready.library.name, inputs)
        profile = profile_of(ready.library, ready.board.description, ready.board.unit, counts)
        counted = _modelled(where, ready.library)
        cycles = estimate_of(ready, profile) if estimate else None
    _print(profile)
    _print_accelerator(profile, counted)
    OUT.print(f"without profiling, one run takes {plain.count:,} {profile.unit}")
    if cycles:
        print_estimate(cycles)
    folder = Path(output or "build") / f"{profile.model}-profile"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder}: cannot be written: {error.strerror or error}", "choose another folder with --output"
        ) from error
    texts = {"json": profile.as_json(), "folded": profile.folded_stacks(), "html": render(profile)}
    for suffix, text in texts.items():
        write_whole(folder / f"profile.{suffix}", text)
    if counted:
        write_whole(folder / "accelerator.json", json.dumps(counted, indent=2) + "\n")
    estimated = {"estimate": asdict(cycles)} if cycles else {}
    if cycles:
        write_whole(folder / "estimate.json", json.dumps(asdict(cycles), indent=2) + "\n")
    write_json(wanted, json.loads(texts["json"]) | estimated)
    OUT.print(f"profile: {folder / 'profile.html'}; profile.json, profile.folded beside it")


def _print(profile: Profile) -> None:
    table = Table("step", "makes", "operator", box=None)
    for heading in (profile.unit, "share", "per MAC", "floor", "arena in use"):
        table.add_column(heading, justify="right", min_width=6 if heading == "share" else None)
    for step in profile.steps:
        table.add_row(
            str(step.number),
            printable(", ".join(step.makes)),
            step.function,
            f"{step.count:,}",
            f"{100 * profile.share(step):.1f} %",
            f"{step.count / step.macs:.2f}" if step.macs else "",
            f"{step.floor:.2f}" if step.floor and profile.unit == "instructions" else "",
            f"{step.live_bytes:,}",
        )
    table.add_row("all", "", "", f"{profile.total:,}", "", "", "", f"{profile.arena_bytes:,}")
    OUT.print(table)


def _modelled(where: BoardSelection, library: Library) -> Sequence[Mapping[str, int]]:
    """Return what the model of the accelerator counts in each step; nothing where the library uses none."""
    if not library.accelerator:
        return ()
    modelled = accelerator_of(boards.load(where.board)).modelled
    return modelled(library) if modelled else ()


def _print_accelerator(profile: Profile, counted: Sequence[Mapping[str, int]]) -> None:
    steps = [(step, each) for step, each in zip(profile.steps, counted, strict=False) if any(each.values())]
    if not steps:
        return
    table = Table("step", "operator", box=None)
    for name in steps[0][1]:
        table.add_column(name.replace("_", " "), justify="right")
    for step, each in steps:
        table.add_row(str(step.number), step.function, *(f"{value:,}" for value in each.values()))
    OUT.print("on the accelerator, by its model:")
    OUT.print(table)


def render(profile: Profile) -> str:
    """Return the page with the picture: style and picture are in it, so that it can be kept."""
    return (
        pages_of("utvm.cli")
        .get_template("profile.html.j2")
        .render(profile=profile, width=_WIDTH, kinds=_kinds(profile), boxes=_boxes(profile), bars=_bars(profile))
    )


def _boxes(profile: Profile) -> list[Flame]:
    """Lay out three rows: the model, steps of one kind that follow each other, each step."""
    colours = _kinds(profile)
    boxes = [_box(profile, 0, 0, profile.total, profile.model, "whole")]
    begin = 0
    for kind, group in itertools.groupby(profile.steps, key=lambda step: step.kind):
        steps = list(group)
        boxes.append(_box(profile, 1, begin, sum(step.count for step in steps), kind, colours[kind]))
        for step in steps:
            boxes.append(_box(profile, 2, begin, step.count, step.label, colours[kind]))
            begin += step.count
    return boxes


def _kinds(profile: Profile) -> dict[str, str]:
    kinds = dict.fromkeys(step.kind for step in profile.steps)
    return {kind: f"c{number % _COLOURS}" for number, kind in enumerate(kinds)}


def _box(profile: Profile, row: int, begin: int, count: int, name: str, colour: str) -> Flame:
    unit = _WIDTH / max(profile.total, 1)
    width = count * unit
    hint = f"{name}: {count:,} {profile.unit}, {100 * count / max(profile.total, 1):.1f} %"
    return Flame(round(begin * unit, 2), round(width, 2), row, colour, label_in(width, name), hint)


def _bars(profile: Profile) -> list[StepBar]:
    unit = _WIDTH / max(profile.total, 1)
    begins = itertools.accumulate((step.count for step in profile.steps), initial=0)

    def bar(begin: int, step: MeasuredStep) -> StepBar:
        height = 100 * step.live_bytes / max(profile.arena_bytes, 1)
        hint = f"{step.label}: {step.live_bytes:,} B"
        return StepBar(round(begin * unit, 2), round(step.count * unit, 2), round(height, 2), hint)

    return [bar(begin, step) for begin, step in zip(begins, profile.steps, strict=False)]


def _log(line: str) -> None:
    OUT.print(line)
