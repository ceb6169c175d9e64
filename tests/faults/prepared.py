# SPDX-License-Identifier: Apache-2.0
"""Starts runs as copies of a process with loaded modules and templates, which saves half of a run's time.

Faults before they are loaded are injected into runs that start like ``./inv``.
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

from tests.signals import reset_signals
from utvm.base.process import end_process
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
    # Modules that pytest and the drivers load later.
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
    """A run that is a child of another process, which reports its exit code."""

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
        """Wait for its end, like psutil."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = int(self._connection.recv(_MOST))
            except (BlockingIOError, TimeoutError):
                raise psutil.TimeoutExpired(timeout, self.pid) from None
        return self.returncode


class PreparedProcess:
    """A process with loaded modules; one run at a time.

    Args:
        environment: further variables, which a process reads at its start.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(child_end.fileno())],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                pass_fds=[child_end.fileno()],
                start_new_session=True,
                preexec_fn=reset_signals,  # noqa: PLW1509
            )

    def close(self) -> None:
        """End the process."""
        self._socket.close()
        end_process(self._process, patience=5)

    def start(self, program: str, words: Sequence[str], environment: Mapping[str, str], output: int) -> Copy:
        """Run a Python program in a copy of the process.

        Args:
            output: the file descriptor of its output.
        """
        request = json.dumps({"start": program, "words": words, "environment": dict(environment)}).encode()
        self._socket.settimeout(None)
        socket.send_fds(self._socket, [request], [output])
        return Copy(int(self._socket.recv(_MOST)), self._socket)


def _serve(connection: socket.socket) -> tuple[str, int]:
    """Fork for each request; return in the child only, with the request and the descriptor for its output."""
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


def _prepare(request: str, output: int) -> str:
    """Set up the process for the request; return the program to run."""
    content = json.loads(request)
    os.setsid()
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    os.environ.clear()
    os.environ.update(content["environment"])
    sys.argv = ["-c", *content["words"]]
    program: str = content["start"]
    return program


if __name__ == "__main__":
    for _name in _MODULES:
        importlib.import_module(_name)
    _pages = pages_of("utvm.hil")
    for _name in _pages.list_templates():
        _pages.get_template(_name)
    # Copies do not search the shared objects for garbage.
    gc.freeze()
    # Like the first line of `./inv`: a signal may come before the copy is set up.
    for _number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(_number, lambda *_: os._exit(3))
    exec(_prepare(*_serve(socket.socket(fileno=int(sys.argv[1])))))
