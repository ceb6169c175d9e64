# SPDX-License-Identifier: Apache-2.0
"""A command on another computer that ends when we do, and files that go there and back: ssh and rsync."""

import contextlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import IO

from utvm.base.process import service
from utvm.base.process.run import run_tool
from utvm.errors import VERDICTS, ProvisionError

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
