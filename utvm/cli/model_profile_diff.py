# SPDX-License-Identifier: Apache-2.0
"""``model.profile --diff``: two profiles, layer by layer."""

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from utvm.base.storage.files import check_readable, read_text
from utvm.base.text.quoting import printable
from utvm.cli.output import OUT
from utvm.errors import ConfigError
from utvm.session.profile import MeasuredStep, Profile

_HINT = "give two files profile.json or results of model.profile --json"
_PROFILE = TypeAdapter(Profile)


def compare_profiles(first: Path, second: Path) -> None:
    """Print the counts of each layer in two profiles; layers are the same if they make the same tensors."""
    before, after = _read(first), _read(second)
    if before.unit != after.unit:
        raise ConfigError(f"{first} counts {before.unit} and {second} counts {after.unit}", "profile on one board")
    rows = _rows(before, after)
    if not any(one and other for _, one, other in rows):
        raise ConfigError(f"{first} and {second} have no layer in common", "are they of one model?")
    OUT.print(f"{before.unit}; before: {printable(before.board)}; after: {printable(after.board)}")
    OUT.table(
        *("makes", ">before", ">after", ">ratio", ">per MAC", ">then"),
        rows=[
            *(
                (
                    makes,
                    _count(one),
                    _count(other),
                    _ratio(_count(one), _count(other)),
                    _per_mac(one),
                    _per_mac(other),
                )
                for makes, one, other in rows
            ),
            ("all", before.total, after.total, _ratio(before.total, after.total), "", ""),
        ],
    )
    layers = [{"makes": makes, "counts": [_count(one), _count(other)]} for makes, one, other in rows]
    OUT.results({"unit": before.unit, "total": [before.total, after.total], "layers": layers})


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
