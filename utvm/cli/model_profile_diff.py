# SPDX-License-Identifier: Apache-2.0
"""What ``model.profile --diff`` does: two profiles beside each other, layer by layer."""

from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from rich.table import Table

from utvm.base.storage.files import check_readable, read_text
from utvm.base.text.names import printable
from utvm.cli.choices import JsonChoice
from utvm.cli.output import OUT, check_json, write_json
from utvm.errors import ConfigError
from utvm.session.profile import MeasuredStep, Profile

_HINT = "give two files profile.json, or what model.profile --json wrote"
_PROFILE = TypeAdapter(Profile)


def compare_profiles(first: Path, second: Path, wanted: JsonChoice) -> None:
    """Print what each layer took in two profiles.

    Layers are the same that make the same tensors.
    """
    check_json(wanted)
    before, after = _read(first), _read(second)
    if before.unit != after.unit:
        raise ConfigError(f"{first} counts {before.unit} and {second} counts {after.unit}", "profile on one board")
    rows = _rows(before, after)
    if not any(one and other for _, one, other in rows):
        raise ConfigError(f"{first} and {second} have no layer in common", "are they of one model?")
    table = Table("makes", box=None)
    for heading in ("before", "after", "ratio", "per MAC", "then"):
        table.add_column(heading, justify="right")
    for makes, one, other in rows:
        counts = [f"{each.count:,}" if each else "" for each in (one, other)]
        ratio = f"{other.count / one.count:.3f}" if one and other and one.count else ""
        table.add_row(printable(makes), *counts, ratio, *(_a_mac(each) for each in (one, other)))
    ratio = f"{after.total / before.total:.3f}" if before.total else ""
    table.add_row("all", f"{before.total:,}", f"{after.total:,}", ratio, "", "")
    OUT.print(f"{before.unit}; before: {printable(before.board)}; after: {printable(after.board)}")
    OUT.print(table)
    content = {
        "unit": before.unit,
        "total": [before.total, after.total],
        "layers": [
            {"makes": makes, "counts": [each.count if each else None for each in (one, other)]}
            for makes, one, other in rows
        ],
    }
    write_json(wanted, content)


def _read(path: Path) -> Profile:
    check_readable(path, _HINT)
    try:
        return _PROFILE.validate_json(read_text(path, _HINT))
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise ConfigError(
            f"{path}: is no profile: {f'{where}: ' if where else ''}{problem['msg']}", _HINT
        ) from error


def _rows(before: Profile, after: Profile) -> list[tuple[str, MeasuredStep | None, MeasuredStep | None]]:
    ones, others = ({_called(step): step for step in each.steps} for each in (before, after))
    return [(name, ones.get(name), others.get(name)) for name in dict.fromkeys([*ones, *others])]


def _called(step: MeasuredStep) -> str:
    return ", ".join(step.makes) or step.function


def _a_mac(step: MeasuredStep | None) -> str:
    return f"{step.count / step.macs:.2f}" if step and step.macs else ""
