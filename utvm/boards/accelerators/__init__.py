# SPDX-License-Identifier: Apache-2.0
"""Accelerators that a board may have: a file each, found and not listed.

What a board's file says below ``accelerator.NAME`` is read by the accelerator's own record. One of your own is a
package that names its :class:`Accelerator` under ``[project.entry-points."utvm.accelerators"]``.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from utvm import plugins
from utvm.base.storage.cache import tree_digest
from utvm.base.storage.config import Record, validate
from utvm.boards.board import Board
from utvm.boards.parts import Address
from utvm.compiler.accelerator import Assistant, Offer, Wish
from utvm.compiler.library import Library
from utvm.errors import ConfigError
from utvm.virtual.neighbour import Neighbour
from utvm.virtual.spec import Peripheral

GROUP = "utvm.accelerators"
"""The group of entry points under which an installed package brings further ones."""


class AcceleratorPart(Record):
    """What a board's file says of any accelerator.

    ``clock_hz`` is what its cycles are counted in. ``registers`` is where a chip has them. ``auto`` is whether it
    is given what it is estimated to make faster, or only what is asked for: it may be a model, or not be there.
    """

    clock_hz: int = Field(gt=0)
    registers: Address | None = None
    auto: bool = True


@dataclass(frozen=True)
class Sources:
    """C that is linked into an image.

    Attributes:
        files: of a driver or a model; ``include`` are folders of headers, ``generated`` texts by file name, and
            ``defines`` macros of the whole image, ``NAME=value``.
    """

    files: tuple[Path, ...] = ()
    include: tuple[Path, ...] = ()
    generated: Mapping[str, str] = field(default_factory=dict)
    defines: tuple[str, ...] = ()


@dataclass(frozen=True)
class BoardAccelerator:
    """An accelerator as a board has it.

    Attributes:
        identity: kind and configuration: what was compiled for another one runs not here.
        offer: what it would do of an int8 operator; raises :class:`utvm.compiler.accelerator.Refused`.
        driver: what its lowered functions call.
        model: what stands in its place where the board is a process.
        registers: what drives it on a chip; None where the board's file does not say where its registers are.
        neighbour: makes the model that stands beside an emulator, given the board's memory as addresses and sizes;
            None where there is none.
        on_bus: the model that is on the bus of a virtual board which is a software model of ours; None where there
            is none.
        reads: files that all this was read from, beside the board's folder.
        told: makes words for a reader of what an assertion of the driver says.
        modelled: says of each step of a library what the accelerator's model counts there; None where nobody does.
    """

    identity: str
    offer: Callable[[Any], Offer]
    driver: Sources
    model: Sources
    registers: Sources | None = None
    neighbour: Callable[[Sequence[tuple[int, int]]], Neighbour] | None = None
    on_bus: Peripheral | None = None
    reads: tuple[Path, ...] = ()
    told: Callable[[str], str] = str
    modelled: Callable[[Library], Sequence[Mapping[str, int]]] | None = None


@dataclass(frozen=True)
class Accelerator:
    """A kind of accelerator. A file's ``ACCELERATOR``, or what an entry point names, is this.

    Attributes:
        name: what boards' files call it.
        block: reads what they say of it, a kind of :class:`AcceleratorPart`.
        fit: makes of that, and of the board's folder, the accelerator of the board.
        wanted: of names that an object takes from elsewhere, the identity of the accelerator whose driver has
            them, whatever its configuration; nothing where it is another one's.
    """

    name: str
    block: type[AcceleratorPart]
    fit: Callable[[Any, Path], BoardAccelerator]
    wanted: Callable[[Collection[str]], str] = lambda names: ""


@functools.cache
def table() -> Mapping[str, Accelerator]:
    """Return all kinds by name."""
    return plugins.discover(sys.modules[__name__], "ACCELERATOR", GROUP, Accelerator)


def accelerator_of(board: Board) -> BoardAccelerator:
    """Return the accelerator of a board that has one."""
    accelerator, block = _said(board)
    return accelerator.fit(block, board.directory)


def wanted(names: Collection[str]) -> str:
    """Return the identity of the accelerator whose driver has some of these names; nothing where none has."""
    return next((found for each in table().values() if (found := each.wanted(names))), "")


def assistant(board: Board, wish: Wish) -> Assistant | None:
    """Return what the compiler is told of a board's accelerator; None where it has none, or it is to do
    nothing.
    """
    if wish == "off" or (wish == "auto" and not board.accelerator):
        return None
    accelerator, block = _said(board)
    if wish == "auto" and not block.auto:
        return None
    made = accelerator.fit(block, board.directory)
    return Assistant(
        made.identity,
        tree_digest(Path(inspect.getfile(accelerator.fit)).parent),
        made.offer,
        board.clock_hz / block.clock_hz,
        wish == "all",
    )


def _said(board: Board) -> tuple[Accelerator, AcceleratorPart]:
    where = f"{board.directory / 'board.yaml'}: accelerator"
    if not board.accelerator:
        raise ConfigError(f"{board.full_name} has no accelerator", "leave --accelerator out")
    ((name, said),) = board.accelerator.items()
    known = table()
    if name not in known:
        raise ConfigError(
            f"{where}.{name}: there is no such accelerator",
            f"there are: {', '.join(known)}; is the package that brings it installed?",
        )
    block = validate(known[name].block, said, f"{where}.{name}")
    for region in board.memory:
        if block.registers is not None and region.address <= block.registers < region.end:
            raise ConfigError(f"{where}.{name}: registers: {block.registers:#x} lies in the memory {region.name}")
    return known[name], block
