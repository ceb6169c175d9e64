# SPDX-License-Identifier: Apache-2.0
"""Accelerators of boards: one file each in this package.

An accelerator's own record reads ``accelerator.NAME`` of a board's file. A package may add an :class:`Accelerator`
under ``[project.entry-points."utvm.accelerators"]``.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field

from utvm import plugins
from utvm.base.storage import cache, config
from utvm.boards.board import Board
from utvm.boards.parts import Address
from utvm.compiler.accelerator import AcceleratorUse, Assistant, Offer
from utvm.compiler.library import Library
from utvm.errors import ConfigError
from utvm.virtual import spec, wiring

SourcesT = TypeVar("SourcesT", bound="Sources")


class AcceleratorPart(config.Record):
    """Keys of all accelerators in a board's file; ``registers`` is their address on a chip.

    With ``auto``, ``accelerator=auto`` uses it for operators with an estimated speed-up.
    """

    clock_hz: int = Field(gt=0)
    registers: Address | None = None
    auto: bool = True


@dataclass(frozen=True)
class Sources:
    """C for an image: files, include folders, generated files by name, and macros, ``NAME=value``."""

    files: tuple[Path, ...] = ()
    include: tuple[Path, ...] = ()
    generated: Mapping[str, str] = field(default_factory=dict)
    defines: tuple[str, ...] = ()

    def __add__(self: SourcesT, other: "Sources") -> SourcesT:
        return replace(
            self,
            files=(*self.files, *other.files),
            include=(*self.include, *other.include),
            generated={**self.generated, **other.generated},
            defines=(*self.defines, *other.defines),
        )


@dataclass(frozen=True)
class BoardAccelerator:
    """The accelerator of a board.

    Attributes:
        identity: kind and configuration; libraries run only on the same one.
        offer: its implementation of an int8 operator; raises :class:`utvm.compiler.accelerator.Refused`.
        driver: C that lowered functions call.
        model: C of a model, for a board that is a process.
        registers: C that drives it on a chip; None if the board's file gives no address of its registers.
        neighbour: makes a model beside an emulator, given addresses and sizes of the board's memory.
        on_bus: a model on the bus of a software model.
        reads: configuration files outside of the board's folder.
        explain: describes an assertion message of the driver.
        model_steps: counts of the model for the steps of a library.
    """

    identity: str
    offer: Callable[[Any], Offer]
    driver: Sources
    model: Sources
    registers: Sources | None = None
    neighbour: Callable[[Sequence[tuple[int, int]]], wiring.ExternalModel] | None = None
    on_bus: spec.Peripheral | None = None
    reads: tuple[Path, ...] = ()
    explain: Callable[[str], str] = str
    model_steps: Callable[[Library], Sequence[Mapping[str, int]]] | None = None


@dataclass(frozen=True)
class Accelerator:
    """A kind of accelerator: ``ACCELERATOR`` of a file, or the object that an entry point names.

    Attributes:
        name: its name in board files.
        block: record of its keys there.
        fit: makes the accelerator of a board from that and the board's folder.
        identify: identity of the accelerator whose driver defines one of these names, or ``""``.
    """

    name: str
    block: type[AcceleratorPart]
    fit: Callable[[Any, Path], BoardAccelerator]
    identify: Callable[[Collection[str]], str] = lambda names: ""


@functools.cache
def table() -> Mapping[str, Accelerator]:
    """All kinds by name."""
    return plugins.discover(sys.modules[__name__], "ACCELERATOR", "utvm.accelerators", Accelerator)


def accelerator_of(board: Board) -> BoardAccelerator:
    """The accelerator of a board that has one."""
    accelerator, block = _kind_of(board)
    return accelerator.fit(block, board.directory)


def identify(names: Collection[str]) -> str:
    """Identity of the accelerator whose driver defines some of these names, or ``""``."""
    return next((identity for kind in table().values() if (identity := kind.identify(names))), "")


def assistant(board: Board, request: AcceleratorUse) -> Assistant | None:
    """The compiler's view of a board's accelerator; None if there is none, or if it is not to be used."""
    if request == "off" or (request == "auto" and not board.accelerator):
        return None
    kind, block = _kind_of(board)
    if request == "auto" and not block.auto:
        return None
    accelerator = kind.fit(block, board.directory)
    code = cache.tree_digest(Path(inspect.getfile(kind.fit)).parent)
    ratio = board.clock_hz / block.clock_hz
    return Assistant(accelerator.identity, code, accelerator.offer, ratio, request == "all")


def _kind_of(board: Board) -> tuple[Accelerator, AcceleratorPart]:
    where = f"{board.directory / 'board.yaml'}: accelerator"
    if not board.accelerator:
        raise ConfigError(f"{board.full_name} has no accelerator", "leave --set accelerator out")
    ((name, content),) = board.accelerator.items()
    known = table()
    if name not in known:
        raise ConfigError(
            f"{where}.{name}: there is no such accelerator",
            f"choose one of {', '.join(known)}, or install the package of this one",
        )
    block = config.validate(known[name].block, content, f"{where}.{name}")
    for region in board.memory:
        if block.registers is not None and region.address <= block.registers < region.end:
            raise ConfigError(f"{where}.{name}: registers: {block.registers:#x} lies in the memory {region.name}")
    return known[name], block
