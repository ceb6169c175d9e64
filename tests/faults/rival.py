# SPDX-License-Identifier: Apache-2.0
"""Somebody else who wants the farm's boards, and a mark on each that nobody has it together with another."""

import contextlib
import fcntl
import json
import random
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO

from tests.farm.farms import Farm
from utvm.errors import UtvmError
from utvm.farm.client import LeaseHolder

BOARDS = "UTVM_FAULTS_BOARDS"
"""The folder of the marks, as runs are told it."""
_TWO = "two"


@contextlib.contextmanager
def alone(folder: Path, place: str) -> Iterator[None]:
    """Have a board for the length of a ``with`` block; where somebody else has it, note that."""
    with (folder / place).open("w") as mark:
        if not _locked(mark):
            with (folder / _TWO).open("a") as noted:
                noted.write(f"{place} was given to two\n")
        yield


@contextlib.contextmanager
def alone_if_told(variables: Mapping[str, str]) -> Iterator[None]:
    """Have the board of the lease that this process was begun with, where a campaign looks after that."""
    folder, lease = variables.get(BOARDS), variables.get("UTVM_LEASE")
    with alone(Path(folder), json.loads(lease)["place"]) if folder and lease else contextlib.nullcontext():
        yield


def given_to_two(folder: Path) -> list[str]:
    """Return which boards two had at once, since this was asked last."""
    with contextlib.suppress(FileNotFoundError):
        noted = (folder / _TWO).read_text().splitlines()
        (folder / _TWO).unlink()
        return noted
    return []


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Rival:
    """Leases a board now and then, as others would, for the length of a ``with`` block."""

    def __init__(self, farm: Farm, folder: Path) -> None:
        self.folder = folder
        self._farm = farm
        self._turn, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._want)

    def __enter__(self) -> "Rival":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Have it hold nothing for the length of a ``with`` block."""
        with self._turn:
            yield

    def _want(self) -> None:
        chance = random.Random()
        while not self._over.wait(chance.uniform(5, 25)):
            with self._turn, contextlib.suppress(UtvmError):
                self._lease(chance.uniform(0.5, 4))

    def _lease(self, seconds: float) -> None:
        log = self._farm.log.with_name("rival.log")
        with LeaseHolder(self._farm.address, {"board": "host"}, 5, log, lambda _: None) as leasing:
            lease, lost = leasing.wait(), threading.Event()
            lease.when_lost(lost.set)
            # As every run of ours does: one whose lease was lost may still be letting go.
            fence = Path(str(lease.board["work"])) / f"{lease.place}.lock"
            fence.parent.mkdir(parents=True, exist_ok=True)
            with fence.open("w") as handle:
                while not _locked(handle):
                    if lost.wait(0.1):
                        return
                with alone(self.folder, lease.place):
                    lost.wait(seconds)
