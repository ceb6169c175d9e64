# SPDX-License-Identifier: Apache-2.0
"""Commands at another location: description, execution over ssh, and file transfer by rsync."""

import contextlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from utvm.base.process import end_process, run_tool
from utvm.base.process.interpreter import python_command
from utvm.boards import Board
from utvm.errors import VERDICTS, ProvisionError
from utvm.paths import INSTALLED, ROOT
from utvm.probe.usb import Probe
from utvm.probe.virtual import UsbKind
from utvm.selection import BoardSelection


@dataclass(frozen=True)
class RemoteCommand:
    """A command of ``./inv`` to run at another location, with this checkout.

    Attributes:
        words: the command and its options, each in parts; paths are translated for the location.
        probe: the selected probe on this computer's USB, if any.
        usb: kind of virtual probe to plug into the location's USB; its virtual board runs on this computer.
    """

    words: tuple[tuple[str | Path, ...], ...]
    board: Board
    selection: BoardSelection
    probe: Probe | None = None
    usb: UsbKind | None = None
    output_folders: tuple[Path, ...] = ()
    cwd: Path | None = None
    output_files: tuple[Path, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        parts = (part for word in self.words for part in word if isinstance(part, Path))
        return tuple(dict.fromkeys((*parts, *self.output_folders, *filter(None, [self.cwd]))))

    def argv(self, paths: Mapping[Path, str], checkout: str) -> list[str]:
        """Return the command line for the location's checkout, with translated paths."""
        # An installed utvm has no inv.
        python = python_command("utvm", interpreter=("python",))
        installed = [word.replace(str(ROOT), checkout) for word in python]
        program = installed if INSTALLED else [f"{checkout}/inv" if self.cwd else "./inv"]
        if self.cwd:
            program = ["env", f"--chdir={paths[self.cwd]}", *program]
        words = ["".join(paths[part] if isinstance(part, Path) else part for part in word) for word in self.words]
        return program + words


def remote_paths(command: RemoteCommand, own: PurePosixPath, checkout: str) -> dict[Path, str]:
    """Return paths of a command on a computer that receives copies of its files.

    Args:
        own: folder of this run: outputs go to a new folder, so that only they are fetched.
    """
    return {
        path: str(
            PurePosixPath(checkout) / path.relative_to(ROOT)
            if ROOT in path.parents and path not in command.output_folders and path.is_dir()
            else own / str(number) / path.name
        )
        for number, path in enumerate(command.paths)
    }


class RemoteLocation(Protocol):
    """Another location to run commands: a container, the virtual machine, a farm.

    Attributes:
        has_usb: whether it has its own USB, with probes not plugged in here.
        chooses_board: whether it selects the board, and adds the options that name it.
    """

    has_usb: bool
    chooses_board: bool

    def run(self, command: RemoteCommand) -> int:
        """Run a command as the calling user, pass its output on, and return its exit code.

        Ctrl-C and SIGTERM stop the command and are then raised; none of its processes outlives this one.
        """


LOST = 255
"""Exit code of ssh if the connection broke."""
# rsync returns ssh's exit code, or one of its own if ssh exited first.
_BROKEN = dict.fromkeys((LOST, 10, 12), "lost its connection")
_GRACE = 60  # Seconds for an interrupted command to end: a run releases its board, and reports.

# Run a command until it ends or the connection does: sshd then closes the input that `cat` reads. The watcher
# polls each second, so that it ends soon after the command.
_OWNED = f"""
setsid "$@" </dev/null 3<&- & command=$!
{{ cat <&3; kill -TERM -$command
  for second in $(seq {_GRACE}); do kill -0 -$command || exit; sleep 1; done
  kill -KILL -$command; }} >/dev/null 2>&1 &
watcher=$!
wait $command; code=$?
kill $watcher 2>/dev/null
exit $code
"""


def bound_command(folder: str, words: Sequence[str], prepare: str = "") -> list[str]:
    """Return a shell command that runs another in a folder until it or the standard input ends."""
    return ["sh", "-c", f'exec 3<&0\ncd "$0" || exit 125\n{prepare}{_OWNED}', folder, *words]


def run_bound(
    command: Sequence[str],
    on_start: Callable[[Callable[[], None]], None] = lambda stop: None,
    log: IO[bytes] | None = None,
) -> int:
    """Run a command of :func:`bound_command`, here or over ssh; pass its output on, return its exit code.

    The command is stopped when this process ends. An interrupt waits for it; if it still reaches a verdict, its
    exit code is returned.
    """
    sys.stdout.flush()
    # Its own session shields it from Ctrl-C: it is stopped below.
    errors = subprocess.STDOUT if log else None
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=errors, start_new_session=True)
    assert process.stdin is not None
    try:
        on_start(process.stdin.close)
        code = process.wait()
    except KeyboardInterrupt:
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        if process.returncode not in VERDICTS:
            raise
        code = process.returncode
    finally:
        end_process(process, 5.0)
    return code


def rsync(ssh: Sequence[str], *words: str, hint: str = "") -> None:
    if shutil.which("rsync") is None:
        raise ProvisionError("rsync is not installed", "sudo apt-get install rsync")
    run_tool(
        ["rsync", "--archive", "--no-owner", "--no-group", f"--rsh={shlex.join(ssh)}", *words],
        error=ProvisionError,
        timeout=1800,
        hint=hint,
        exit_meanings=_BROKEN,
    )
