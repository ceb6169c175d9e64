# SPDX-License-Identifier: Apache-2.0
"""Begins runs in copies of a process that has modules and templates loaded: that spares half of what a run costs.

What a run does before it has them is struck in runs that are begun as ``./inv`` begins them.
"""

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

import psutil

from tests.signals import with_usual_signals
from utvm.base.process.service import end_process
from utvm.pages import pages_of
from utvm.paths import ROOT

_MOST = 1 << 17
_MODULES = (
    "tasks",
    "utvm.__main__",
    "utvm.cli.root_hil",
    "utvm.hil.fixtures",
    "utvm.hil.suites",
    "utvm.hil.report",
    "utvm.session",
    # What pytest and the way to a board load only then.
    "_hypothesis_pytestplugin",
    "_pytest.faulthandler",
    "_pytest.junitxml",
    "_pytest.unittest",
    "hil_tests.programs",
    "platformdirs.pytest_plugin",
    "utvm.drivers.builtin.model",
    "utvm.drivers.builtin.process",
    "utvm.drivers.builtin.qemu",
    "xdist.looponfail",
    "xdist.plugin",
)


class Copy(psutil.Process):  # type: ignore[misc]  # psutil has no types
    """A run that is a child of another process of ours, which says how it has ended."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        super().__init__(pid)
        self._connection = connection
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit code if it has ended."""
        with contextlib.suppress(psutil.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its end, as psutil does."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = int(self._connection.recv(_MOST))
            except (BlockingIOError, TimeoutError):
                raise psutil.TimeoutExpired(timeout, self.pid) from None
        return self.returncode


class Prepared:
    """Such a process; one run at a time.

    Args:
        environment: variables that it has beside ours: those that a process heeds when it begins.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                preexec_fn=with_usual_signals,  # noqa: PLW1509
            )

    def close(self) -> None:
        """End it."""
        self._ours.close()
        end_process(self._process, patience=5)

    def begin(self, start: str, words: Sequence[str], environment: Mapping[str, str], output: int) -> Copy:
        """Run a program of Python there.

        Args:
            output: where what it prints goes.
        """
        request = json.dumps({"start": start, "words": words, "environment": dict(environment)}).encode()
        self._ours.settimeout(None)
        socket.send_fds(self._ours, [request], [output])
        return Copy(int(self._ours.recv(_MOST)), self._ours)


def _serve(connection: socket.socket) -> tuple[str, int]:
    """Make a copy for each request; return in it alone, with the request and where its output goes."""
    while True:
        request, outputs, _, _ = socket.recv_fds(connection, _MOST, 1)
        if not request:
            sys.exit()
        pid = os.fork()
        if pid == 0:
            connection.close()
            return request.decode(), outputs[0]
        os.close(outputs[0])
        connection.send(str(pid).encode())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        connection.send(str(code).encode())


def _become(request: str, output: int) -> str:
    """Make this process what it would be, had it been begun for the request; return its program."""
    wanted = json.loads(request)
    os.setsid()
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    os.environ.clear()
    os.environ.update(wanted["environment"])
    sys.argv = ["-c", *wanted["words"]]
    program: str = wanted["start"]
    return program


if __name__ == "__main__":
    for _name in _MODULES:
        importlib.import_module(_name)
    _pages = pages_of("utvm.hil")
    for _name in _pages.list_templates():
        _pages.get_template(_name)
    # What copies share is not searched for garbage in each.
    gc.freeze()
    # As the first line of `./inv` has it: a copy may be struck before it has become what was asked for.
    for _number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(_number, lambda *_: os._exit(3))
    exec(_become(*_serve(socket.socket(fileno=int(sys.argv[1])))))
