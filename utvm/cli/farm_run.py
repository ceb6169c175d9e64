# SPDX-License-Identifier: Apache-2.0
"""A command that drives one board, given to a farm: the same words at its host, files there and back."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from utvm import boards
from utvm.base.storage.files import check_writable
from utvm.boards import PATH_VARIABLE
from utvm.cli.choices import TuneChoice
from utvm.cli.progress import telling
from utvm.environment.remote import RemoteCommand
from utvm.errors import ConfigError, ExitCode, ProvisionError
from utvm.farm.location import InFarm
from utvm.options import Parts, parts
from utvm.paths import need_checkout
from utvm.selection import BoardFolders, BoardSelection, FarmChoice

_WRITES = ("output", "json", "log")
"""Options that name a file which a command writes, wherever one has them."""


def run_in_farm(command: str, there: FarmChoice, records: Sequence[Any], own: Mapping[str, object]) -> ExitCode:
    """Run a command where a farm has its board.

    Args:
        command: as a command line calls it.
        records: its options that belong together; one says which board is meant.
        own: its other options, by the names of the function's parameters.
    """
    if there.in_ != "farm":
        raise ConfigError("--farm, --place and --tags choose a board of a farm", "use them with --in farm")
    need_checkout("--in farm")
    if (search := next((each for each in records if isinstance(each, TuneChoice)), None)) and search.count > 1:
        from utvm.cli.model_tune_farm import tune_together

        tune_together(there, *records)
        return ExitCode.PASSED
    where = next(each for each in records if isinstance(each, BoardSelection))
    named = {name: str(getattr(each, name)) for each in records for name in _WRITES if hasattr(each, name)}
    named |= {name: str(own[name]) for name in _WRITES if name in own}
    if named.get("log") == "":
        raise ConfigError("--in farm brings home what it is told the name of", "give --log FILE")
    outputs = {name: Path(path).resolve() for name, path in named.items() if path not in ("", "-")}
    check_writable(*outputs.values())
    # Which one of the board it is, the farm says.
    told = [
        dataclasses.replace(each, kind="auto", serial="", wait=0.0) if each is where else each for each in records
    ]
    words = [word for each in told for word in parts(each) if _flag(word) not in outputs]
    words += parts(BoardFolders(os.environ.get(PATH_VARIABLE, "")))
    words += [(_spelled(name, value),) for name, value in own.items() if value and name not in _WRITES]
    words += [(f"--{name}=", path) for name, path in outputs.items()]
    board = boards.load(where.board)
    with telling("--in farm") as say:
        code = InFarm(say, there).run(
            RemoteCommand(((command,), *words), board, where, output_files=tuple(outputs.values()))
        )
    try:
        return ExitCode(code)
    except ValueError:
        raise ProvisionError(f"the run came to no end of its own: exit code {code}") from None


def _flag(word: Parts) -> str:
    return str(word[0]).partition("=")[0].lstrip("-")


def _spelled(name: str, value: object) -> str:
    flag = f"--{name.replace('_', '-')}"
    return flag if value is True else f"{flag}={value}"
