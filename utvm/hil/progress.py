# SPDX-License-Identifier: Apache-2.0
"""The progress of runs, which ``dashboard`` shows: a JSON file in each run's log folder.

A run holds a lock on the folder of its logs. The kernel releases it when the run ends in any way.
"""

import contextlib
import fcntl
import functools
import heapq
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from utvm.base.storage.cache import cache_root
from utvm.base.storage.files import open_regular, write_whole
from utvm.errors import ConfigError
from utvm.paths import work

FILE = "progress.json"
_INTERVAL = 0.5  # Seconds between two writes.
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LARGEST = 4 << 20  # Bytes.


class RunProgress:
    """Writes the state of a run into its log folder twice a second, until :meth:`close`.

    A run whose progress cannot be written goes on.

    Args:
        console: returns the last output of the board's console.
        state: what is known at the start.
    """

    def __init__(self, folder: Path, console: Callable[[], str] = lambda: "", **state: object) -> None:
        self.state: dict[str, Any] = {"run_id": folder.name, **state}
        self._file, self._console, self._written = folder / FILE, console, ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write_regularly, name="progress", daemon=True)
        # No more threads or open files: the run itself may still get along.
        with contextlib.suppress(OSError, RuntimeError):
            self._register(folder)
            self._thread.start()

    def close(self, verdict: str) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self.state["verdict"] = verdict
        self._write()

    def _register(self, folder: Path) -> None:
        """Lock the folder, and link it from the user's list of runs; remove links to folders that are gone."""
        fcntl.flock(os.open(folder, _FOLDER), fcntl.LOCK_SH)
        _links().mkdir(parents=True, exist_ok=True)
        for link in _links().iterdir():
            if not link.exists():
                link.unlink(missing_ok=True)
        (_links() / folder.name).symlink_to(folder)

    def _write_regularly(self) -> None:
        while not self._ended.wait(_INTERVAL):
            self._write()

    def _write(self) -> None:
        self.state["console"] = self._console() or self.state.get("console", "")
        # Copied first, because the run goes on while this is written.
        copies = {name: value.copy() if isinstance(value, dict) else value for name, value in [*self.state.items()]}
        text = json.dumps(copies)
        if text != self._written:
            with contextlib.suppress(ConfigError):
                write_whole(self._file, text)
                self._written = text


def _links() -> Path:
    return cache_root() / "runs"


def newest_runs(count: int) -> Iterator[tuple[Path, Mapping[str, Any], bool]]:
    """Yield the log folder of a run, its state, and whether it is running, newest first.

    Runs in a container have no access to the user's list; they are found beside the reports.
    """
    folders = {path.name: path for root in (work() / "logs", _links()) for path in root.glob("*Z-*")}
    for name in heapq.nlargest(count, folders):
        with contextlib.suppress(OSError, ValueError):
            folder = folders[name].resolve()
            yield folder, *read(folder)


def read(folder: Path) -> tuple[Mapping[str, Any], bool]:
    """Return the state of a run, and whether it is running; raises OSError, ValueError."""
    state = _read(folder / FILE, (folder / FILE).stat().st_mtime_ns)
    return state, "verdict" not in state and _is_locked(folder)


@functools.lru_cache(1000)
def _read(path: Path, _modified: int) -> Mapping[str, Any]:
    with open(path, "rb", opener=open_regular) as file:
        state: Mapping[str, Any] = json.loads(file.read(_LARGEST))
    return state


def _is_locked(folder: Path) -> bool:
    handle = os.open(folder, _FOLDER)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
