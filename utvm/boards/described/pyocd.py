# SPDX-License-Identifier: Apache-2.0
"""Chips as pyOCD knows them: the targets that are built into it, wherever it is installed."""

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

from utvm.boards.described.chip import Chip, ChipMemory, part_name, read_xml, refined, units, without_overlaps
from utvm.errors import ConfigError

INSTALL = "pipx install pyocd; or pip install 'utvm[pyocd]'"


@dataclass(frozen=True)
class Installed:
    """A pyOCD: the program, and the Python that has it, as words of a command line."""

    program: Path
    python: tuple[str, ...]


def find() -> Installed | None:
    """Return the pyOCD that is installed; None where none is."""
    beside = Path(sys.executable).with_name("pyocd")
    program = shutil.which("pyocd") or (str(beside) if beside.is_file() else None)
    if program is None:
        return None
    first = Path(program).read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    return Installed(Path(program), tuple(first.removeprefix("#!").split()))


_ASK = Path(__file__).with_name("ask_pyocd.py")
_SECONDS = 300
# All of them run its code; an SVD says more, and most targets have one.
_SMALLEST = "cortex-m0"


def read() -> Mapping[str, Callable[[], Chip]]:
    """Return the targets that are built into pyOCD, by name. Raises ConfigError: it is not installed."""
    return {name: functools.partial(_chip, name) for name in _ask()}


def _ask(*names: str) -> Any:
    """Ask pyOCD with its own Python, for it may be installed away from ours."""
    installed = find()
    if installed is None:
        raise ConfigError("pyOCD is not installed", f"{INSTALL}; or name a file that describes the chip")
    try:
        done = subprocess.run(
            [*installed.python, "-", *names],
            input=_ASK.read_bytes(),  # as a file it would find what lies beside it
            capture_output=True,
            timeout=_SECONDS,
            check=True,
        )
        return json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        said = getattr(error, "stderr", None) or str(error).encode()
        last = said.decode(errors="replace").strip().splitlines()[-1:]
        raise ConfigError(
            f"{installed.program}: does not say what it knows: {' '.join(last)[:200]}",
            "pyocd --version: is it whole, and 0.36 or newer?",
        ) from error


def read_all() -> Mapping[str, Callable[[], Chip]]:
    """Return the same after asking for all of them at once, which is quicker for many. Raises ConfigError."""
    names = _ask()
    return {name: functools.partial(_made, name, said) for name, said in zip(names, _ask(*names), strict=True)}


def _chip(name: str) -> Chip:
    return _made(name, _ask(name)[0])


def _made(name: str, said: dict[str, Any]) -> Chip:
    memory = without_overlaps(list(_joined([_memory(one) for one in said["memory"]])))
    chip = Chip(said["part"] or name, _SMALLEST, False, memory, None, "pyOCD", name)
    registers = said["registers"].encode()
    return refined(chip, read_xml(Path(f"pyOCD's SVD of {name}"), registers)) if registers else chip


def _memory(said: dict[str, Any]) -> ChipMemory:
    return ChipMemory(
        part_name(said["name"], "memory"),
        said["start"],
        said["size"],
        said["kind"],
        sectors=units(said["size"], said["sector"]),
        first=said["first"],
    )


def _joined(memory: list[ChipMemory]) -> Iterator[ChipMemory]:
    """Yield memory with pieces of flash that follow each other as one: it is cut where its sectors change."""
    memory = sorted(memory, key=lambda piece: piece.address)
    starts = [0] + [
        number
        for number, (before, piece) in enumerate(pairwise(memory), 1)
        if not (before.end == piece.address and before.sectors and piece.sectors)
    ]
    for start, end in pairwise([*starts, len(memory)]):
        first, *rest = memory[start:end]
        yield ChipMemory(
            first.name,
            first.address,
            sum(piece.size for piece in (first, *rest)),
            first.kind,
            sectors=sum((piece.sectors for piece in rest), first.sectors),
            first=any(piece.first for piece in (first, *rest)),
        )
