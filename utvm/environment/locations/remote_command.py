# SPDX-License-Identifier: Apache-2.0
"""A command of ``./inv`` for another place, and what every place does with one."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from utvm.boards import Board
from utvm.paths import ROOT
from utvm.probe.usb import Probe
from utvm.probe.virtual import UsbKind
from utvm.selection import BoardKind


@dataclass(frozen=True)
class Wanted:
    """The board that a command drives, as it was asked for.

    Attributes:
        serial: of its probe; empty where any will do.
        probe: the one on this computer's USB that was chosen; None where that is none.
        usb: the virtual board stays on this computer, and this probe of it is on the place's USB.
        wait: seconds to wait in line for that probe.
    """

    board: Board
    wish: BoardKind
    serial: str
    probe: Probe | None = None
    usb: UsbKind | None = None
    wait: float = 0.0


@dataclass(frozen=True)
class RemoteCommand:
    """A command to be run elsewhere, with this checkout.

    Attributes:
        words: the command and its options, each in parts: a path among them is a folder of this computer, and is
            called as the place calls it. Of a farm's boards, a file may be, too.
        wanted: the board that it drives.
        start: the folder of this computer that the command is given in; None for the checkout.
        fills: folders that the command writes into, beside those in ``words`` if need be; made if missing.
        writes: files among those in ``words`` that it writes; one that is there it may read.
    """

    words: tuple[tuple[str | Path, ...], ...]
    wanted: Wanted
    fills: tuple[Path, ...] = ()
    start: Path | None = None
    writes: tuple[Path, ...] = ()

    @property
    def folders(self) -> tuple[Path, ...]:
        """All folders and files of this computer that it needs, each once."""
        named = (part for word in self.words for part in word if isinstance(part, Path))
        return tuple(dict.fromkeys((*named, *self.fills, *filter(None, [self.start]))))

    def command(self, places: Mapping[Path, str], checkout: str) -> list[str]:
        """Return the command as it is given in the checkout of a place.

        Args:
            places: what is called how there.
            checkout: what that is.
        """
        begun = ["env", f"--chdir={places[self.start]}", f"{checkout}/inv"] if self.start else ["./inv"]
        words = ["".join(places[part] if isinstance(part, Path) else part for part in word) for word in self.words]
        return begun + words


def called(errand: RemoteCommand, own: PurePosixPath, checkout: str) -> dict[Path, str]:
    """Return what a computer that files are sent to calls some folders.

    Args:
        own: its folder for this run: what is written has a new one, so that no more is fetched.
        checkout: what it calls the checkout.
    """
    return {
        path: str(
            PurePosixPath(checkout) / path.relative_to(ROOT)
            if ROOT in path.parents and path not in errand.fills and path.is_dir()
            else own / str(number) / path.name
        )
        for number, path in enumerate(errand.folders)
    }


class Place(Protocol):
    """Where commands can be run that is not here.

    Attributes:
        own_usb: whether a probe may be plugged in there that is not plugged in here.
        own_boards: whether it is found out there which board it is: the command is told by the place.
    """

    own_usb: bool
    own_boards: bool

    def run(self, errand: RemoteCommand) -> int:
        """Run a command there as the calling user, pass on what it prints, and return its exit code.

        Ctrl-C and SIGTERM tell it to end, and are raised when it has; nothing of it outlives this process.
        """
