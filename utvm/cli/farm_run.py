# SPDX-License-Identifier: Apache-2.0
"""A command for one board, run at the board's host in a farm; files are copied there and back."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from utvm import boards, errors, options, paths, selection
from utvm.base.storage.files import check_writable
from utvm.cli.choices import TuneChoice
from utvm.cli.output import OUT, STDOUT, print_steps
from utvm.environment.remote import RemoteCommand
from utvm.farm.location import InFarm

_WRITES = ("output", "log")
"""Options with a file that a command writes."""


def run_in_farm(
    command: str, farm: selection.FarmChoice, records: Sequence[Any], own: Mapping[str, object]
) -> errors.ExitCode:
    """Run a command at the host of its board.

    Args:
        records: its option records, including a :class:`BoardSelection`.
        own: its other options, by parameter name.
    """
    farm.require_farm()
    paths.need_checkout("--in farm")
    if (search := next((record for record in records if isinstance(record, TuneChoice)), None)) and search.count > 1:
        from utvm.cli.model_tune import tune_together

        tune_together(farm, *records)
        return errors.ExitCode.PASSED
    where = next(record for record in records if isinstance(record, selection.BoardSelection))
    files = {name: str(getattr(record, name)) for record in records for name in _WRITES if hasattr(record, name)}
    files |= {name: str(own[name]) for name in _WRITES if name in own} | {"json": OUT.json_target}
    if files.get("log") == "":
        raise errors.ConfigError("--in farm copies back only files that are named", "give --log FILE")
    outputs = {name: Path(path).resolve() for name, path in files.items() if path not in ("", STDOUT)}
    check_writable(*outputs.values())
    host_records = [
        dataclasses.replace(record, kind="auto", serial="", wait=0.0) if record is where else record
        for record in records
    ]
    words = [word for record in host_records for word in options.parts(record) if _flag(word) not in outputs]
    words += [("--json",)] if OUT.json_target == STDOUT else []
    words += options.parts(selection.BoardFolders(os.environ.get(boards.PATH_VARIABLE, "")))
    words += [(_spell(name, value),) for name, value in own.items() if value and name not in _WRITES]
    words += [(f"--{name}=", path) for name, path in outputs.items()]
    board = boards.load(where.board)
    with print_steps() as say:
        code = InFarm(say, farm).run(
            RemoteCommand(((command,), *words), board, where, output_files=tuple(outputs.values()))
        )
    with errors.ProvisionError.on(ValueError, f"the run was cut off: exit code {code}"):
        return errors.ExitCode(code)


def _flag(word: options.Parts) -> str:
    return str(word[0]).partition("=")[0].lstrip("-")


def _spell(name: str, value: object) -> str:
    flag = f"--{name.replace('_', '-')}"
    return flag if value is True else f"{flag}={value}"
