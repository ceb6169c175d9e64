# SPDX-License-Identifier: Apache-2.0
"""pyOCD: finds its installation, and reads the chips built into it."""

import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from utvm.base.process.interpreter import python_command
from utvm.boards.described import chip
from utvm.errors import ConfigError

INSTALL = "pipx install pyocd; or pip install 'utvm[pyocd]'"

_ASK = Path(__file__).with_name("ask_pyocd.py")
_SECONDS = 300
_SMALLEST = "cortex-m0"  # Code for it runs on all cores; the SVD of a target names the real one.


@dataclass(frozen=True)
class Installed:
    """The program, and the command of the Python that has pyOCD."""

    program: Path
    python: tuple[str, ...]


def find() -> Installed | None:
    """Find pyOCD on PATH or beside this Python; it may be in an environment of its own."""
    neighbour = Path(sys.executable).with_name("pyocd")
    program = shutil.which("pyocd") or (str(neighbour) if neighbour.is_file() else None)
    if program is None:
        return None
    if Path(program) == neighbour:  # Its first line names the installation folder, which may have moved.
        return Installed(neighbour, (sys.executable,))
    first_line = Path(program).read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    return Installed(Path(program), tuple(first_line.removeprefix("#!").split()))


def read() -> Mapping[str, Callable[[], chip.Chip]]:
    """A reader for each target built into pyOCD, by name."""
    return {name: functools.partial(_read_chip, name) for name in _ask()}


def read_all() -> Mapping[str, Callable[[], chip.Chip]]:
    """As :func:`read`, with all targets read at once, which is faster for many."""
    names = _ask()
    return {name: functools.partial(_chip, name, row) for name, row in zip(names, _ask(*names), strict=True)}


def _ask(*names: str) -> Any:
    installed = find()
    if installed is None:
        raise ConfigError("pyOCD is not installed", f"{INSTALL}; or give a file that describes the chip")
    try:
        process = subprocess.run(
            python_command(str(_ASK), *names, interpreter=installed.python),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=True,
        )
        return json.loads(process.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        output = getattr(error, "stderr", None) or str(error).encode()
        last = output.decode(errors="replace").strip().splitlines()[-1:]
        raise ConfigError(
            f"{installed.program}: cannot list its targets: {' '.join(last)[:200]}",
            "check with pyocd --version that it works and is 0.36 or newer",
        ) from error


def _read_chip(name: str) -> chip.Chip:
    return _chip(name, _ask(name)[0])


def _chip(name: str, row: dict[str, Any]) -> chip.Chip:
    memory = chip.without_overlaps(_join_flash([_memory(piece) for piece in row["memory"]]))
    found = chip.Chip(row["part"] or name, _SMALLEST, False, memory, None, "pyOCD", name)
    registers = row["registers"].encode()
    return chip.add_registers(found, chip.read_xml(Path(f"pyOCD's SVD of {name}"), registers)) if registers else found


def _memory(row: dict[str, Any]) -> chip.ChipMemory:
    sectors = chip.split_sectors(row["size"], row["sector"])
    return chip.ChipMemory(chip.memory_name(row["name"]), row["start"], row["size"], row["kind"], sectors, row["first"])


def _join_flash(memory: list[chip.ChipMemory]) -> Iterator[chip.ChipMemory]:
    """Join adjacent flash: pyOCD splits it where the sector size changes."""
    memory = sorted(memory, key=lambda piece: piece.address)
    starts = [0] + [
        number
        for number, (before, piece) in enumerate(pairwise(memory), 1)
        if not (before.end == piece.address and before.sectors and piece.sectors)
    ]
    for start, end in pairwise([*starts, len(memory)]):
        pieces = memory[start:end]
        yield chip.ChipMemory(
            pieces[0].name,
            pieces[0].address,
            sum(piece.size for piece in pieces),
            pieces[0].kind,
            sectors=sum((piece.sectors for piece in pieces), ()),
            first=any(piece.first for piece in pieces),
        )
