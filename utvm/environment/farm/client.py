# SPDX-License-Identifier: Apache-2.0
"""A farm's coordinator, asked through the helper in labgrid's environment; and a lease on one of its boards."""

import contextlib
import getpass
import json
import os
import platform
import queue
import secrets
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from utvm.environment.own_python import own_python
from utvm.environment.recipe import PROVISION
from utvm.errors import ConfigError, ProvisionError
from utvm.process import last_lines

LOCK = PROVISION / "farm.lock"
DEFAULT_PORT = 20408
_ENDING = 20.0  # Seconds in which the helper gives a lease back.
_ANSWER = 90.0


def labgrid(say: Callable[[str], None]) -> Path:
    """Return the Python of labgrid's environment, which is made if need be.

    Raises:
        ProvisionError: the packages cannot be had.
    """
    return own_python(LOCK, "labgrid", say) / "bin" / "python"


def coordinator_of(address: str) -> str:
    """Return the HOST:PORT that is meant; an empty one is that of labgrid's own variable, else this computer's.

    Raises:
        ConfigError: it is none.
    """
    text = address or os.environ.get("LG_COORDINATOR", "") or f"127.0.0.1:{DEFAULT_PORT}"
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"--farm {text!r} is no HOST:PORT", f"for instance 127.0.0.1:{DEFAULT_PORT}")
    return text


class FarmClient:
    """The helper, for the length of a ``with`` block: one session with a coordinator.

    Args:
        address: of the coordinator, HOST:PORT.
        log: where labgrid's own words go.
        say: is told what is being done.

    Raises:
        ProvisionError: no coordinator answers, or labgrid cannot be had.
    """

    def __init__(self, address: str, log: Path, say: Callable[[str], None]) -> None:
        self._address = address
        self._log = log
        self._say = say
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self.on_loss: Callable[[str], None] = lambda why: None

    def __enter__(self) -> "FarmClient":
        python = labgrid(self._say)
        self._log.parent.mkdir(parents=True, exist_ok=True)
        holder = f"{getpass.getuser()}-utvm-{os.getpid()}-{secrets.token_hex(2)}"
        with self._log.open("ab") as log:
            # Not one that the kernel ends with us: it has a lease to give back when its standard input ends.
            self._helper = subprocess.Popen(
                [python, Path(__file__).with_name("helper.py"), self._address],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env={**os.environ, "LG_HOSTNAME": platform.node(), "LG_USERNAME": holder},
            )
        self._reader = threading.Thread(target=self._read, name="farm", daemon=True)
        self._reader.start()
        try:
            self._next()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def ask(self, do: str, *, waiting: Callable[[dict[str, Any]], None] = lambda _: None, **what: Any) -> Any:
        """Ask for something and return the answer.

        Args:
            do: a method of the helper's client, ``what`` is what that takes.
            waiting: receives what there is to say before there is an answer.

        Raises:
            ConfigError: it is nothing that the farm has.
            ProvisionError: it cannot be had now.
        """
        assert self._helper.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._helper.stdin.write(json.dumps({"do": do, **what}) + "\n")
            self._helper.stdin.flush()
        while "position" in (answer := self._next(None if do == "lease" else _ANSWER)):
            waiting(answer)
        return answer

    def _next(self, patience: float | None = _ANSWER) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=patience)
        except queue.Empty:
            raise ProvisionError(f"the farm at {self._address} gives no answer") from None
        if "error" in answer:
            error = ConfigError if answer["kind"] == "usage" else ProvisionError
            raise error(answer["error"], "./inv farm.list shows what there is")
        return answer

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
        self._answers.put({"error": ended, "kind": "infrastructure"})

    def _end(self) -> None:
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


@dataclass
class Lease:
    """The right to a board of a farm, while its ``with`` block runs.

    Attributes:
        place: what the farm calls it.
        holder: who has it, as labgrid tells everybody.
        waited: seconds in line.
        board: what its host says of it: name, kind, serial and where utvm is there.
        service: where to log in: address, username, port.
        lost: why it is no longer ours; empty while it is.
        outcome: of the run, for who looks after the boards: ``verdict`` or ``infrastructure``.
    """

    place: str
    holder: str
    waited: float
    board: Mapping[str, Any]
    service: Mapping[str, Any]
    lost: str = ""
    outcome: str = ""
    _when_lost: list[Callable[[], None]] = field(default_factory=list)

    def when_lost(self, then: Callable[[], None]) -> None:
        """Have something done as soon as it is lost: at once, where it is."""
        self._when_lost.append(then)
        if self.lost:
            then()

    def lose(self, why: str) -> None:
        """Note that it is lost."""
        self.lost = self.lost or why
        for then in self._when_lost:
            then()


@contextlib.contextmanager
def leased(
    farm: FarmClient, filters: Mapping[str, str], wait: float | None, say: Callable[[str], None]
) -> Iterator[Lease]:
    """Have a board of a farm, for the length of a ``with`` block.

    Args:
        filters: the tags that it must have.
        wait: seconds to wait in line; None for as long as it takes.
        say: is told how long the line is, and who has the boards.

    Raises:
        ConfigError: the farm has no such board.
        ProvisionError: all of them are in quarantine or away, or none was free in time.
    """

    def waiting(seen: dict[str, Any]) -> None:
        if seen["busy"]:
            held = ", ".join(f"{place} by {holder}" for place, holder in seen["busy"].items())
            say(f"waiting for a board, place {seen['position']} in line; held: {held}")

    had = farm.ask("lease", waiting=waiting, filters=dict(filters), wait=wait)
    lease = Lease(had["place"], had["holder"], had["waited"], had["board"], had["service"])
    farm.on_loss = lease.lose
    try:
        yield lease
    finally:
        farm.on_loss = lambda why: None
        # Where the farm does not answer any more, the lease ends by its deadline.
        with contextlib.suppress(ProvisionError):
            farm.ask("release", outcome=lease.outcome)
