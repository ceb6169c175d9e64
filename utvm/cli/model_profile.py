# SPDX-License-Identifier: Apache-2.0
"""``model.profile``: the cost of each operator, as a table, a picture and folded stacks."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from utvm import boards, compiler, errors, selection
from utvm.base.storage.files import check_folder, check_readable, read_text, write_whole
from utvm.base.text.quoting import printable
from utvm.boards.accelerators import accelerator_of
from utvm.cli import board_serve, choices, compiling
from utvm.cli.compiling import check_counts, find
from utvm.cli.output import OUT, as_json, logs_of, say
from utvm.session.profile import MeasuredStep, Profile, layers, profile_of, render, render_models
from utvm.session.rpc import RpcSession

_HINT = "give two files profile.json or results of model.profile --json"
_PROFILE = TypeAdapter(Profile)


def profile_model(model: choices.InputChoice, where: selection.BoardSelection, output: str, diff: str) -> None:
    """Run a model on a board once, step by step, and print and write the count of each step.

    Args:
        output: parent folder of the profile's folder.
        diff: instead, compare this profile with the one given as the model.
    """
    if diff:
        check_folder(output or "build")
        _compare_profiles(Path(diff), Path(model.model), Path(output or "build") / "profiles.html")
        return
    check_folder(output or "build")
    check_counts(find(where))
    with board_serve.open_for_rpc(where, model, logs_of("model.profile"), say) as served:
        inputs = compiling.read_inputs(served.library, model.input, model.settings.get("scale", ""))
        OUT.print(served.board.description)
        with RpcSession(served.board, [served.library]) as session:
            plain = session.run(served.library.name, inputs)
            _, counts = session.profile(served.library.name, inputs)
            waits = session.profile_waits(served.library.name, inputs)
        profile = profile_of(served.library, served.board.description, served.board.unit, counts, waits)
        accelerator_counts = _accelerator_counts(where, served.library)
    board = boards.load(where.board)
    _print(profile, board)
    _print_accelerator(profile, accelerator_counts)
    cost = ", ".join(filter(None, (f"{plain.count:,} {profile.unit}", board.describe_time(plain.count, profile.unit))))
    if profile.waits:
        OUT.print("issue: cycles that issue instructions; load, flash, branch: cycles that wait for these")
    OUT.print(f"without profiling, one run takes {cost}")
    folder = Path(output or "build") / f"{profile.model}-profile"
    with errors.ConfigError.on_os_error(f"{folder}: cannot be written", "choose another folder with --output"):
        folder.mkdir(parents=True, exist_ok=True)
    texts = {"json": profile.as_json(), "folded": profile.folded_stacks(), "html": render(profile, served.library)}
    for suffix, text in texts.items():
        write_whole(folder / f"profile.{suffix}", text)
    if accelerator_counts:
        write_whole(folder / "accelerator.json", as_json(accelerator_counts))
    OUT.results(json.loads(texts["json"]))
    OUT.print(f"profile: {folder / 'profile.html'}; profile.json, profile.folded beside it")


def _print(profile: Profile, board: boards.Board) -> None:
    def time(count: int) -> str:
        ms = board.milliseconds(count, profile.unit)
        return f"{ms:.3f}" if ms else ""

    waits = (f">{name}" for name in profile.waits)
    rows = [
        (
            str(step.number),
            ", ".join(step.makes),
            step.function,
            step.count,
            time(step.count),
            *step.waits.values(),
            f"{100 * profile.share(step):.1f} %",
            f"{step.count / step.macs:.2f}" if step.macs else "",
            f"{step.floor:.2f}" if step.floor and profile.unit == "instructions" else "",
            step.live_bytes,
        )
        for step in profile.steps
    ]
    total = ("all", "", "", profile.total, time(profile.total), *profile.waits.values(), "", "", "")
    costs = (f">{profile.unit}", ">ms", *waits)
    OUT.table(
        ("step", "makes", "operator", *costs, "> share", ">per MAC", ">floor", ">arena in use"),
        rows=[*rows, (*total, profile.arena_bytes)],
    )


def _accelerator_counts(where: selection.BoardSelection, library: compiler.Library) -> Sequence[Mapping[str, int]]:
    """Return the counts of the accelerator's model in each step; empty if the library uses none."""
    if not library.accelerator:
        return ()
    model_steps = accelerator_of(boards.load(where.board)).model_steps
    return model_steps(library) if model_steps else ()


def _print_accelerator(profile: Profile, by_step: Sequence[Mapping[str, int]]) -> None:
    steps = [(step, counts) for step, counts in zip(profile.steps, by_step, strict=False) if any(counts.values())]
    if steps:
        OUT.print("on the accelerator, by its model:")
        OUT.table(
            ("step", "operator", *(f">{name.replace('_', ' ')}" for name in steps[0][1])),
            rows=[(str(step.number), step.function, *counts.values()) for step, counts in steps],
        )


def _compare_profiles(first: Path, second: Path, page: Path) -> None:
    """Print each layer of two profiles, and write their page; layers match if they produce the same tensors."""
    before, after = _read(first), _read(second)
    if before.unit != after.unit:
        raise errors.ConfigError(
            f"{first} counts {before.unit} and {second} counts {after.unit}", "profile on one board"
        )
    rows = _rows(before, after)
    if not any(one and other for _, one, other in rows):
        raise errors.ConfigError(f"{first} and {second} have no layer in common", "profile one model twice")
    OUT.print(f"{before.unit}; before: {printable(before.board)}; after: {printable(after.board)}")
    OUT.table(
        ("makes", ">before", ">after", ">ratio", ">per MAC before", ">after"),
        rows=[
            *(
                (makes, _count(one), _count(other), _ratio(_count(one), _count(other)), _per_mac(one), _per_mac(other))
                for makes, one, other in rows
            ),
            ("all", before.total, after.total, _ratio(before.total, after.total), "", ""),
        ],
    )
    page.parent.mkdir(parents=True, exist_ok=True)
    write_whole(page, render_models("two profiles", [layers(before, title="before"), layers(after, title="after")]))
    OUT.print(f"both beside each other: {page}")
    counts = [{"makes": makes, "counts": [_count(one), _count(other)]} for makes, one, other in rows]
    OUT.results({"unit": before.unit, "total": [before.total, after.total], "layers": counts})


def _read(path: Path) -> Profile:
    check_readable(path, _HINT)
    try:
        return _PROFILE.validate_json(read_text(path, _HINT))
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        raise errors.ConfigError(
            f"{path}: is not a profile: {f'{key}: ' if key else ''}{problem['msg']}", _HINT
        ) from error


def _rows(before: Profile, after: Profile) -> list[tuple[str, MeasuredStep | None, MeasuredStep | None]]:
    ones, others = (
        {", ".join(step.makes) or step.function: step for step in profile.steps} for profile in (before, after)
    )
    return [(name, ones.get(name), others.get(name)) for name in dict.fromkeys([*ones, *others])]


def _count(step: MeasuredStep | None) -> int | None:
    return step.count if step else None


def _ratio(before: int | None, after: int | None) -> str:
    return f"{after / before:.3f}" if before and after is not None else ""


def _per_mac(step: MeasuredStep | None) -> str:
    return f"{step.count / step.macs:.2f}" if step and step.macs else ""
