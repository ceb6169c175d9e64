# SPDX-License-Identifier: Apache-2.0
"""Client of a farm's coordinator, through the helper that runs in labgrid's Python environment, and leases."""

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
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from utvm.base.process import interpreter, peer, run
from utvm.base.storage.files import open_regular
from utvm.environment.python_lock import locked_venv
from utvm.errors import ConfigError, ProvisionError
from utvm.paths import PROVISION
from utvm.provenance.location import Lease

LOCK = PROVISION / "farm.lock"
DEFAULT_PORT = 20408
_STOP_TIMEOUT = 20.0  # Seconds for the helper to give a lease back.
_REPLY_TIMEOUT = 90.0
_ACCEPT_TIMEOUT = 5.0


def labgrid_python(say: Callable[[str], None]) -> Path:
    return locked_venv(LOCK, "labgrid", say) / "bin" / "python"


def coordinator_address() -> str:
    """Return HOST:PORT of LG_COORDINATOR, or of this user's own coordinator."""
    text = os.environ.get("LG_COORDINATOR", "") or _own_coordinator()
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"LG_COORDINATOR: {text!r} is no HOST:PORT", f"for instance 127.0.0.1:{DEFAULT_PORT}")
    return text


def _own_coordinator() -> str:
    # A coordinator chooses the hosts of jobs, so the one at the default address must be this user's.
    address = ("127.0.0.1", DEFAULT_PORT)
    with contextlib.suppress(OSError), socket.create_connection(address, 1.0) as connection:
        deadline = time.monotonic() + _ACCEPT_TIMEOUT
        # The peer has no owner until it accepts.
        while (uid := peer.peer_uid(connection)) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if uid != os.geteuid():
            raise ProvisionError(
                f"what listens at 127.0.0.1:{DEFAULT_PORT} belongs to another user",
                "to use it all the same, name it with LG_COORDINATOR",
            )
    return f"127.0.0.1:{DEFAULT_PORT}"


def no_proxy_variables() -> dict[str, str]:
    """Return the environment variable that makes gRPC reach this computer without a proxy."""
    variable = "no_grpc_proxy"
    current = os.environ.get(variable) or os.environ.get("no_proxy", "")
    return {variable: ",".join(filter(None, (current, "127.0.0.1", "::1", "localhost")))}


class HelperEnded(ProvisionError):
    """The helper has exited."""


_ERRORS = {"usage": ConfigError, "ended": HelperEnded}


class FarmClient:
    """The helper process, as a context manager: one session with a coordinator."""

    def __init__(self, address: str, log: Path, say: Callable[[str], None]) -> None:
        self._address = address
        self._log = log
        self._say = say
        self.on_loss: Callable[[str], None] = lambda reason: None

    def __enter__(self) -> "FarmClient":
        self.start()
        try:
            self.read_reply(_REPLY_TIMEOUT)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        helper = str(Path(__file__).with_name("helper.py"))
        command = interpreter.python_command(helper, self._address, interpreter=(str(labgrid_python(self._say)),))
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._replies: queue.Queue[dict[str, Any]] = queue.Queue()
        holder = f"{getpass.getuser()}-utvm-{os.getpid()}-{secrets.token_hex(2)}"
        with open(self._log, "ab", opener=open_regular) as log:
            # It must outlive a killed parent: it releases the lease when its standard input ends.
            self._helper = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env={**os.environ, **no_proxy_variables(), "LG_HOSTNAME": platform.node(), "LG_USERNAME": holder},
            )
        self._reader = threading.Thread(target=self._read, name="farm", daemon=True)
        self._reader.start()

    def stop(self) -> None:
        self.on_loss = lambda reason: None
        assert self._helper.stdin is not None and self._helper.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._helper.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._helper.wait(_STOP_TIMEOUT)
        self._helper.kill()
        self._helper.wait()
        self._reader.join()
        self._helper.stdout.close()

    def call(self, method: str, **arguments: Any) -> Any:
        self.send(method, **arguments)
        return self.read_reply(_REPLY_TIMEOUT)

    def send(self, method: str, **arguments: Any) -> None:
        assert self._helper.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._helper.stdin.write(json.dumps({"do": method, **arguments}) + "\n")
            self._helper.stdin.flush()

    def read_reply(self, timeout: float | None) -> dict[str, Any]:
        try:
            reply = self._replies.get(timeout=timeout)
        except queue.Empty:
            raise ProvisionError(f"the farm at {self._address} does not answer") from None
        if "error" in reply:
            error = _ERRORS.get(reply["kind"], ProvisionError)
            raise error(reply["error"], reply.get("hint", "./inv farm.list shows all boards"))
        return reply

    @property
    def has_unread_reply(self) -> bool:
        return not self._replies.empty()

    def _read(self) -> None:
        assert self._helper.stdout is not None
        for line in self._helper.stdout:
            content = json.loads(line)
            if "lost" in content:
                self.on_loss(content["lost"])
            else:
                self._replies.put(content)
        self.on_loss("its lease holder has exited")
        message = f"labgrid's client has exited; its log {self._log} ends with:\n{run.last_lines(self._log)}"
        self._replies.put({"error": message, "kind": "ended"})


class LeaseHolder:
    """A board of a farm, queued for and leased, as a context manager.

    A board that gives no verdict is exchanged for another, once: :meth:`retry`.

    Attributes:
        earlier: boards that gave no verdict: place, host and reason.
    """

    def __init__(
        self, address: str, filters: Mapping[str, str], wait: float | None, log: Path, say: Callable[[str], None]
    ) -> None:
        self._farm = FarmClient(address, log, say)
        self._filters, self._wait, self._say = filters, wait, say
        self._excluded: Collection[str] = ()
        self.lease: Lease | None = None
        self.earlier: tuple[Mapping[str, str], ...] = ()
        self._lost = ""
        self._restarted = False

    def __enter__(self) -> "LeaseHolder":
        self._start()
        return self

    def _start(self) -> None:
        self._lost = ""
        self._farm.on_loss = self._on_loss
        self._farm.start()

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        lease, self.lease = self.lease, None
        try:
            self._farm.on_loss = lambda reason: None
            if lease:
                # If the farm no longer replies, the lease expires at its deadline.
                with contextlib.suppress(ProvisionError):
                    self._farm.call("release", outcome=lease.outcome)
        finally:
            self._farm.stop()

    def exchange(self, excluded: Collection[str]) -> None:
        """Release the board and queue for one outside the excluded places."""
        self.release()
        self._excluded = set(excluded)
        self._start()

    def retry(self, reason: str, excluded: Collection[str] = ()) -> bool:
        """Exchange a board that gave no verdict for another, once; False if there is no other."""
        assert self.lease
        if self.earlier or not self.lease.others:
            return False
        brief = reason.partition("\n")[0].rstrip(":")
        self.earlier = ({"place": self.lease.place, "host": self.lease.host, "why": brief},)
        self.exchange({self.lease.place, *excluded})
        return True

    def wait(self) -> Lease:
        while self.lease is None:
            self._read_reply()
        return self.lease

    def poll(self) -> Lease | None:
        """Return the lease, or None while in the queue. Raises as :meth:`wait`."""
        while self.lease is None and self._farm.has_unread_reply:
            self._read_reply()
        return self.lease

    def _read_reply(self) -> None:
        try:
            reply = self._farm.read_reply(None)
        except HelperEnded:
            if self._restarted:
                raise
            # A helper killed in the queue holds no board: restart it, once.
            self._restarted = True
            self._farm.stop()
            self._start()
            return
        if "ready" in reply:
            request = {"filters": dict(self._filters), "wait": self._wait, "excluded": sorted(self._excluded)}
            self._farm.send("lease", **request)
        elif "place" in reply:
            self.lease = Lease(**reply, earlier=self.earlier)
            if self._lost:
                self.lease.mark_lost(self._lost)
        elif "away" in reply:
            self._say(f"waiting for a host: {reply['away']}")
        elif reply["busy"]:
            holders = ", ".join(f"{place} by {holder}" for place, holder in reply["busy"].items())
            self._say(f"waiting for a board, place {reply['position']} in line; held: {holders}")

    def _on_loss(self, reason: str) -> None:
        self._lost = reason
        if self.lease:
            self.lease.mark_lost(reason)
