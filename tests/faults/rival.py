# SPDX-License-Identifier: Apache-2.0
"""Another tenant of the farm, and a check that no board has two users at once."""

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
"""The variable with the folder of the marks."""
_TWO = "two"


@contextlib.contextmanager
def sole_user(folder: Path, place: str) -> Iterator[None]:
    """Use a board for the length of a ``with`` block; record if it has another user."""
    with (folder / place).open("w") as mark:
        if not _try_lock(mark):
            with (folder / _TWO).open("a") as noted:
                noted.write(f"{place} was given to two\n")
        yield


@contextlib.contextmanager
def sole_user_if_checked(variables: Mapping[str, str]) -> Iterator[None]:
    """Use the board of this process's lease; check for another user if a campaign asks for it."""
    folder, lease = variables.get(BOARDS), variables.get("UTVM_LEASE")
    with sole_user(Path(folder), json.loads(lease)["place"]) if folder and lease else contextlib.nullcontext():
        yield


def given_to_two(folder: Path) -> list[str]:
    """Return the boards that had two users at once since the last call."""
    with contextlib.suppress(FileNotFoundError):
        noted = (folder / _TWO).read_text().splitlines()
        (folder / _TWO).unlink()
        return noted
    return []


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Rival:
    """Leases a board now and then, for the length of a ``with`` block."""

    def __init__(self, farm: Farm, folder: Path) -> None:
        self.folder = folder
        self._farm = farm
        self._turn, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run)

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
        """Release all boards for the length of a ``with`` block."""
        with self._turn:
            yield

    def _run(self) -> None:
        chance = random.Random()
        while not self._over.wait(chance.uniform(5, 25)):
            with self._turn, contextlib.suppress(UtvmError):
                self._lease(chance.uniform(0.5, 4))

    def _lease(self, seconds: float) -> None:
        log = self._farm.log.with_name("rival.log")
        with LeaseHolder(self._farm.address, {"board": "host"}, 5, log, lambda _: None) as leasing:
            lease, lost = leasing.wait(), threading.Event()
            lease.when_lost(lost.set)
            # As in every run here, a run that lost its lease may still be ending.
            fence = Path(str(lease.board["work"])) / f"{lease.place}.lock"
            fence.parent.mkdir(parents=True, exist_ok=True)
            with fence.open("w") as handle:
                while not _try_lock(handle):
                    if lost.wait(0.1):
                        return
                with sole_user(self.folder, lease.place):
                    lost.wait(seconds)
