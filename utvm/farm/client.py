# SPDX-License-Identifier: Apache-2.0
"""A farm's coordinator, asked through the helper in labgrid's environment; and a lease on one of its boards."""

import contextlib
import getpass
import json
import os
import platform
import queue
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from utvm.base.process.interpreter import python_command
from utvm.base.process.peer import peer_uid
from utvm.base.process.run import last_lines
from utvm.base.storage.safe_files import open_regular
from utvm.environment.python_lock import locked_venv
from utvm.environment.recipe import PROVISION
from utvm.errors import ConfigError, ProvisionError

LOCK = PROVISION / "farm.lock"
DEFAULT_PORT = 20408
_ENDING = 20.0  # Seconds in which the helper gives a lease back.
_ANSWER = 90.0
_ACCEPTING = 5.0  # Seconds in which a coordinator accepts a connection.


def labgrid_python(say: Callable[[str], None]) -> Path:
    """Return the Python of labgrid's environment, which is made if need be."""
    return locked_venv(LOCK, "labgrid", say) / "bin" / "python"


def coordinator_address(address: str) -> str:
    """Return the HOST:PORT that is meant; an empty one is that of labgrid's own variable, else this user's own."""
    text = address or os.environ.get("LG_COORDINATOR", "") or _own_coordinator()
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"--farm {text!r} is no HOST:PORT", f"for instance 127.0.0.1:{DEFAULT_PORT}")
    return text


def _own_coordinator() -> str:
    """Return the usual address: who is there decides to which hosts jobs go, so that must be this user."""
    address = ("127.0.0.1", DEFAULT_PORT)
    with contextlib.suppress(OSError), socket.create_connection(address, 1.0) as connection:
        last = time.monotonic() + _ACCEPTING
        # Until it is accepted, the other end belongs to nobody.
        while (uid := peer_uid(connection)) is None and time.monotonic() < last:
            time.sleep(0.02)
        if uid != os.geteuid():
            raise ProvisionError(
                f"what listens at 127.0.0.1:{DEFAULT_PORT} belongs to another user",
                "--farm or LG_COORDINATOR name it where it is meant all the same",
            )
    return f"127.0.0.1:{DEFAULT_PORT}"


def proxyless() -> dict[str, str]:
    """Return the environment variable that keeps gRPC from asking a proxy for addresses of this computer."""
    variable = "no_grpc_proxy"
    given = os.environ.get(variable) or os.environ.get("no_proxy", "")
    return {variable: ",".join(filter(None, (given, "127.0.0.1", "::1", "localhost")))}


class HelperEnded(ProvisionError):
    """The helper is no more."""


_ERRORS = {"usage": ConfigError, "ended": HelperEnded}


class FarmClient:
    """The helper, for the length of a ``with`` block: one session with a coordinator.

    Args:
        address: of the coordinator, HOST:PORT.
        log: where labgrid's own words go.
        say: is told what is being done.
    """

    def __init__(self, address: str, log: Path, say: Callable[[str], None]) -> None:
        self._address = address
        self._log = log
        self._say = say
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self.on_loss: Callable[[str], None] = lambda why: None

    def __enter__(self) -> "FarmClient":
        self.begin()
        try:
            self.answer(_ANSWER)
        except BaseException:
            self.end()
            raise
        return self

    def begin(self) -> None:
        """Start the helper: its first answer is that it is ready."""
        helper = str(Path(__file__).with_name("helper.py"))
        command = python_command(helper, self._address, interpreter=(str(labgrid_python(self._say)),))
        self._log.parent.mkdir(parents=True, exist_ok=True)
        holder = f"{getpass.getuser()}-utvm-{os.getpid()}-{secrets.token_hex(2)}"
        with open(self._log, "ab", opener=open_regular) as log:
            # Not one that the kernel ends with us: it has a lease to give back when its standard input ends.
            self._helper = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env={**os.environ, **proxyless(), "LG_HOSTNAME": platform.node(), "LG_USERNAME": holder},
            )
        self._reader = threading.Thread(target=self._read, name="farm", daemon=True)
        self._reader.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def call(self, do: str, **what: Any) -> Any:
        """Ask for something and return the answer.

        Args:
            do: a method of the helper's client, ``what`` is what that takes.
        """
        self.send(do, **what)
        return self.answer(_ANSWER)

    def send(self, do: str, **what: Any) -> None:
        """Ask for something; :meth:`answer` returns what is said to it."""
        assert self._helper.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._helper.stdin.write(json.dumps({"do": do, **what}) + "\n")
            self._helper.stdin.flush()

    def answer(self, patience: float | None) -> dict[str, Any]:
        """Return the next answer.

        Args:
            patience: seconds; None for as long as it takes.
        """
        try:
            answer = self._answers.get(timeout=patience)
        except queue.Empty:
            raise ProvisionError(f"the farm at {self._address} gives no answer") from None
        if "error" in answer:
            error = _ERRORS.get(answer["kind"], ProvisionError)
            raise error(answer["error"], answer.get("hint", "./inv farm.list shows what there is"))
        return answer

    @property
    def answered(self) -> bool:
        """Whether there is an answer that nobody has heard."""
        return not self._answers.empty()

    def _read(self) -> None:
        assert self._helper.stdout is not None
        for line in self._helper.stdout:
            content = json.loads(line)
            if "lost" in content:
                self.on_loss(content["lost"])
            else:
                self._answers.put(content)
        self.on_loss("its keeper has ended")
        ended = f"labgrid's client has ended; its log {self._log} ends with:\n{last_lines(self._log)}"
        self._answers.put({"error": ended, "kind": "ended"})

    def end(self) -> None:
        """End the helper, which ends its lease."""
        self.on_loss = lambda why: None
        assert self._helper.stdin is not None and self._helper.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._helper.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._helper.wait(_ENDING)
        self._helper.kill()
        self._helper.wait()
        self._reader.join()
        self._helper.stdout.close()
