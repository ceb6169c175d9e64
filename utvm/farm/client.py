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
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from utvm.base.process.run import last_lines
from utvm.environment.own_python import own_python
from utvm.environment.recipe import PROVISION
from utvm.errors import ConfigError, ProvisionError
from utvm.farm.lease import Lease

LOCK = PROVISION / "farm.lock"
DEFAULT_PORT = 20408
_ENDING = 20.0  # Seconds in which the helper gives a lease back.
_ANSWER = 90.0


def labgrid(say: Callable[[str], None]) -> Path:
    """Return the Python of labgrid's environment, which is made if need be."""
    return own_python(LOCK, "labgrid", say) / "bin" / "python"


def coordinator_of(address: str) -> str:
    """Return the HOST:PORT that is meant; an empty one is that of labgrid's own variable, else this computer's."""
    text = address or os.environ.get("LG_COORDINATOR", "") or f"127.0.0.1:{DEFAULT_PORT}"
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"--farm {text!r} is no HOST:PORT", f"for instance 127.0.0.1:{DEFAULT_PORT}")
    return text


class _EndedError(ProvisionError):
    """The helper is no more."""


_ERRORS = {"usage": ConfigError, "ended": _EndedError}


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

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def ask(self, do: str, **what: Any) -> Any:
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
            raise error(answer["error"], "./inv farm.list shows what there is")
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


class Leasing:
    """A board of a farm, for the length of a ``with`` block: waited for, and then had.

    Args:
        address: of the coordinator, HOST:PORT.
        filters: the tags that the board must have.
        wait: seconds to wait in line; None for as long as it takes.
        log: where labgrid's own words go.
        say: is told how long the line is, and who has the boards.
        but: boards that are not wanted.
    """

    def __init__(
        self,
        address: str,
        filters: Mapping[str, str],
        wait: float | None,
        log: Path,
        say: Callable[[str], None],
        but: Collection[str] = (),
    ) -> None:
        self._farm = FarmClient(address, log, say)
        self._say = say
        self._request = {"filters": dict(filters), "wait": wait, "but": sorted(but)}
        self.lease: Lease | None = None
        self._lost = ""
        self._anew = False

    def __enter__(self) -> "Leasing":
        self._begin()
        return self

    def _begin(self) -> None:
        self._lost = ""
        self._farm.on_loss = self._lose
        self._farm.begin()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._farm.on_loss = lambda why: None
            if self.lease:
                # Where the farm does not answer any more, the lease ends by its deadline.
                with contextlib.suppress(ProvisionError):
                    self._farm.ask("release", outcome=self.lease.outcome)
        finally:
            self._farm.end()

    def had(self) -> Lease:
        """Wait until there is one."""
        while self.lease is None:
            self._hear()
        return self.lease

    def poll(self) -> Lease | None:
        """Return it once it is there, without waiting; raises as :meth:`had`."""
        while self.lease is None and self._farm.answered:
            self._hear()
        return self.lease

    def _hear(self) -> None:
        try:
            answer = self._farm.answer(None)
        except _EndedError:
            if self._anew:
                raise
            # Whoever kills it while it stands in line has taken nobody's board: another one does, once.
            self._anew = True
            self._farm.end()
            self._begin()
            return
        if "ready" in answer:
            self._farm.send("lease", **self._request)
        elif "place" in answer:
            self.lease = Lease(**answer)
            if self._lost:
                self.lease.lose(self._lost)
        elif "away" in answer:
            self._say(f"waiting for a host: {answer['away']}")
        elif answer["busy"]:
            held = ", ".join(f"{place} by {holder}" for place, holder in answer["busy"].items())
            self._say(f"waiting for a board, place {answer['position']} in line; held: {held}")

    def _lose(self, why: str) -> None:
        self._lost = why
        if self.lease:
            self.lease.lose(why)
