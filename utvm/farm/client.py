# SPDX-License-Identifier: Apache-2.0
"""Client of a farm's coordinator, through the helper that runs in labgrid's Python environment, and leases."""

import contextlib
import functools
import getpass
import hashlib
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

from utvm.base.process import interpreter, last_lines, peer
from utvm.base.storage.cache import cache_root
from utvm.base.storage.files import open_regular
from utvm.environment.python_lock import locked_venv
from utvm.errors import ConfigError, ProvisionError, UtvmError
from utvm.paths import PROVISION
from utvm.provenance.location import Lease

LOCK = PROVISION / "farm.lock"
DEFAULT_PORT = 20408
_STOP_TIMEOUT = 20.0  # Seconds for the helper to give a lease back.
_REPLY_TIMEOUT = 90.0
_ACCEPT_TIMEOUT = 5.0
_POLL = 0.02


def labgrid_python(say: Callable[[str], None], *, install: bool = True) -> Path:
    return locked_venv(LOCK, "labgrid", say, install=install) / "bin" / "python"


def coordinator_address() -> str:
    """Return HOST:PORT of LG_COORDINATOR, several separated by commas, or of this user's own coordinator."""
    text = os.environ.get("LG_COORDINATOR", "") or _own_coordinator()
    addresses = [address.strip() for address in text.split(",")]
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            hint = f"for instance 127.0.0.1:{DEFAULT_PORT}; several are separated by commas"
            raise ConfigError(f"LG_COORDINATOR: {address!r} is not HOST:PORT", hint)
    return ",".join(dict.fromkeys(addresses))


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
                f"the program at 127.0.0.1:{DEFAULT_PORT} belongs to another user",
                "to use it anyway, name it with LG_COORDINATOR",
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

    def __init__(self, address: str, log: Path, say: Callable[[str], None], *, install: bool = True) -> None:
        self.address = address
        self._install = install
        self._log = log
        self._say = say
        self.on_loss: Callable[[str], None] = lambda reason: None

    def __enter__(self) -> "FarmClient":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        helper = str(Path(__file__).with_name("helper.py"))
        python = labgrid_python(self._say, install=self._install)
        command = interpreter.python_command(helper, self.address, interpreter=(str(python),))
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
            raise ProvisionError(f"the farm at {self.address} does not answer") from None
        if "error" in reply:
            error = _ERRORS.get(reply["kind"], ProvisionError)
            raise error(reply["error"], reply.get("hint") or "./inv farm.list shows all boards")
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
        message = f"labgrid's client has exited; its log {self._log} ends with:\n{last_lines(self._log)}"
        self._replies.put({"error": message, "kind": "ended"})


class LeaseHolder:
    """A board of a farm, queued for and leased, as a context manager.

    A board that gives no verdict is exchanged for another, once: :meth:`retry`.

    Args:
        addresses: coordinators, separated by commas. The first free board of any is leased.

    Attributes:
        earlier: boards that gave no verdict: place, host and reason.
    """

    def __init__(
        self, addresses: str, filters: Mapping[str, str], wait: float | None, log: Path, say: Callable[[str], None]
    ) -> None:
        self._addresses, self._log = addresses.split(","), log
        self._filters, self._wait, self._say = filters, wait, say
        self._excluded: Collection[str] = ()
        self.lease: Lease | None = None
        self.earlier: tuple[Mapping[str, str], ...] = ()
        self._farms: list[FarmClient] = []  # those queued at; once leased, the lease's own
        self._lost: dict[FarmClient, str] = {}
        self._errors: list[UtvmError] = []
        self._restarted: set[str] = set()

    def __enter__(self) -> "LeaseHolder":
        self._start()
        return self

    def _start(self) -> None:
        self._errors.clear()
        for address in self._addresses:
            self._queue_at(address)

    def _queue_at(self, address: str) -> None:
        farm = FarmClient(address, self._log, self._say)
        farm.on_loss = functools.partial(self._on_loss, farm)
        farm.start()
        self._farms.append(farm)
        request = {"filters": dict(self._filters), "wait": self._wait, "excluded": sorted(self._excluded)}
        key = repr((platform.node(), address, sorted(self._filters.items()), request["excluded"]))
        line = cache_root() / "lines" / hashlib.sha256(key.encode()).hexdigest()[:16]
        farm.send("lease", **request, queue=str(line))

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        lease, self.lease = self.lease, None
        try:
            for farm in self._farms if lease else ():
                farm.on_loss = lambda reason: None
                # If the farm no longer replies, the lease expires at its deadline.
                with contextlib.suppress(ProvisionError):
                    farm.call("release", outcome=lease.outcome if lease else "")
        finally:
            self._leave(*self._farms)

    def _leave(self, *farms: FarmClient) -> None:
        """End sessions in the background, since a coordinator may not answer."""
        for farm in farms:
            self._farms.remove(farm)
            threading.Thread(target=farm.stop).start()

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
        while (lease := self.poll()) is None:
            time.sleep(_POLL)
        return lease

    def poll(self) -> Lease | None:
        """Return the lease, or None while in the queue. Raises as :meth:`wait`."""
        for farm in [*self._farms]:
            while self.lease is None and farm in self._farms and farm.has_unread_reply:
                self._read_reply(farm)
        return self.lease

    def _read_reply(self, farm: FarmClient) -> None:
        try:
            reply = farm.read_reply(None)
        except UtvmError as error:
            self._leave(farm)
            # A helper killed in the queue holds no board: restart it, once.
            if isinstance(error, HelperEnded) and farm.address not in self._restarted:
                self._restarted.add(farm.address)
                self._queue_at(farm.address)
                return
            self._errors.append(error)
            if not self._farms:
                # A coordinator that does not answer may have the board, so its error is more important.
                raise max(reversed(self._errors), key=lambda failure: failure.exit_code) from None
            if not isinstance(error, ConfigError):
                self._say(f"left out: {farm.address}: {error.message}")
            return
        if "place" in reply:
            others = [other for other in self._farms if other is not farm]
            self._leave(*others)
            self.lease = Lease(**{**reply, "others": reply["others"] + len(others)}, earlier=self.earlier)
            if farm in self._lost:
                self.lease.mark_lost(self._lost[farm])
        elif "away" in reply:
            self._say(f"waiting for a host: {reply['away']}")
        elif reply["busy"]:
            holders = ", ".join(f"{place} by {holder}" for place, holder in reply["busy"].items())
            self._say(f"waiting for a board, place {reply['position']} in line; held: {holders}")

    def _on_loss(self, farm: FarmClient, reason: str) -> None:
        self._lost[farm] = reason
        if self.lease and farm in self._farms:
            self.lease.mark_lost(reason)
