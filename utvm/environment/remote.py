# SPDX-License-Identifier: Apache-2.0
"""A command on another computer that ends when we do, and files that go there and back: ssh and rsync."""

import contextlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from utvm.base.process import service
from utvm.base.process.run import run_tool
from utvm.boards import Board
from utvm.errors import VERDICTS, ProvisionError
from utvm.paths import ROOT
from utvm.probe.usb import Probe
from utvm.probe.virtual import UsbKind
from utvm.selection import BoardKind


@dataclass(frozen=True)
class BoardRequest:
    """The board that a command drives, as it was asked for.

    Attributes:
        serial: of its probe; empty where any will do.
        probe: the one on this computer's USB that was chosen; None where that is none.
        usb: the virtual board stays on this computer, and this probe of it is on the place's USB.
        wait: seconds to wait in line for that probe.
    """

    board: Board
    kind: BoardKind
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
        request: the board that it drives.
        start: the folder of this computer that the command is given in; None for the checkout.
        fills: folders that the command writes into, beside those in ``words`` if need be; made if missing.
        writes: files among those in ``words`` that it writes; one that is there it may read.
    """

    words: tuple[tuple[str | Path, ...], ...]
    request: BoardRequest
    output_folders: tuple[Path, ...] = ()
    cwd: Path | None = None
    output_files: tuple[Path, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """All folders and files of this computer that it needs, each once."""
        named = (part for word in self.words for part in word if isinstance(part, Path))
        return tuple(dict.fromkeys((*named, *self.output_folders, *filter(None, [self.cwd]))))

    def argv(self, places: Mapping[Path, str], checkout: str) -> list[str]:
        """Return the command as it is given in the checkout of a place.

        Args:
            places: what is called how there.
            checkout: what that is.
        """
        begun = ["env", f"--chdir={places[self.cwd]}", f"{checkout}/inv"] if self.cwd else ["./inv"]
        words = ["".join(places[part] if isinstance(part, Path) else part for part in word) for word in self.words]
        return begun + words


def remote_paths(command: RemoteCommand, own: PurePosixPath, checkout: str) -> dict[Path, str]:
    """Return what a computer that files are sent to calls some folders.

    Args:
        own: its folder for this run: what is written has a new one, so that no more is fetched.
        checkout: what it calls the checkout.
    """
    return {
        path: str(
            PurePosixPath(checkout) / path.relative_to(ROOT)
            if ROOT in path.parents and path not in command.output_folders and path.is_dir()
            else own / str(number) / path.name
        )
        for number, path in enumerate(command.paths)
    }


class Location(Protocol):
    """Where commands can be run that is not here.

    Attributes:
        has_usb: whether a probe may be plugged in there that is not plugged in here.
        chooses_board: whether it is found out there which board it is: the command is told by the place.
    """

    has_usb: bool
    chooses_board: bool

    def run(self, command: RemoteCommand) -> int:
        """Run a command there as the calling user, pass on what it prints, and return its exit code.

        Ctrl-C and SIGTERM tell it to end, and are raised when it has; nothing of it outlives this process.
        """


LOST = 255
"""What ssh itself ends with."""
# rsync ends as ssh does, or with a code of its own where ssh had gone before it looked.
_BROKEN = dict.fromkeys((LOST, 10, 12), "lost its connection")
_PATIENCE = 60  # Seconds that an interrupted command may take to end: a run lets go of its board, and reports.

# Runs a command until it ends or until the connection does: sshd then closes the input that `cat` reads. Who waits
# then looks each second, so that it is not there for long when the command has ended.
_OWNED = f"""
setsid "$@" </dev/null 3<&- & command=$!
{{ cat <&3; kill -TERM -$command
  for second in $(seq {_PATIENCE}); do kill -0 -$command || exit; sleep 1; done
  kill -KILL -$command; }} >/dev/null 2>&1 &
watcher=$!
wait $command; code=$?
kill $watcher 2>/dev/null
exit $code
"""


def owned(folder: str, words: Sequence[str], first: str = "") -> list[str]:
    """Return the command that runs another one until that ends, or until its own standard input does.

    Args:
        folder: where it runs.
        words: the command.
        first: what the shell does before, in that folder.
    """
    return ["sh", "-c", f'exec 3<&0\ncd "$0" || exit 125\n{first}{_OWNED}', folder, *words]


def run_owned(
    command: Sequence[str],
    begun: Callable[[Callable[[], None]], None] = lambda end: None,
    log: IO[bytes] | None = None,
) -> int:
    """Run a command of :func:`owned`, here or over ssh; pass on what it prints, and return its exit code.

    It is told to end when we end, in whatever way; interrupted, we wait until it has. One that came to a verdict
    all the same has said so, and that is its exit code.

    Args:
        begun: receives what tells it to end.
        log: the file that has what it prints; None for where we print.
    """
    sys.stdout.flush()
    # A session of its own: Ctrl-C in the terminal is for us, and we end it in order.
    errors = subprocess.STDOUT if log else None
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=errors, start_new_session=True)
    assert running.stdin is not None
    try:
        begun(running.stdin.close)
        code = running.wait()
    except KeyboardInterrupt:
        running.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(_PATIENCE)
        if running.returncode not in VERDICTS:
            raise
        code = running.returncode
    finally:
        service.end_process(running, 5.0)
    return code


def rsync(over: Sequence[str], *words: str, hint: str = "") -> None:
    """Copy files by rsync.

    Args:
        over: the ssh command that it goes over.
    """
    if shutil.which("rsync") is None:
        raise ProvisionError("rsync is not installed", "sudo apt-get install rsync")
    run_tool(
        ["rsync", "--archive", "--no-owner", "--no-group", f"--rsh={shlex.join(over)}", *words],
        error=ProvisionError,
        timeout=1800,
        hint=hint,
        meaning=_BROKEN,
    )
