# SPDX-License-Identifier: Apache-2.0
"""The environment of the campaign's runs: folders, a small disk, a clock, a probe on a bus."""

import contextlib
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from tests.faults.place import Place
from tests.faults.places import PLACES
from tests.probe import fake_usb
from utvm import boards
from utvm.base.storage.lock import shared_directory
from utvm.paths import ROOT
from utvm.probe.virtual import start_virtual
from utvm.virtual.usb import MAKER

_BOARD = "stm32f746"
_SMALL = "192m"


class Surroundings:
    """Everything in one folder; :func:`made` also removes mounts and locks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.suites, self.small = folder / "suites", folder / "small"
        self.reports, self.cache, self.state = folder / "reports", folder / "cache", folder / "state"
        self._bus, self._clock = folder / "usb", folder / "clock"
        self._serial = f"FAULTS-{os.getpid()}"
        self._address = 5
        self._places: dict[str, Place] = {}

    def prepare(self) -> None:
        """Create the folders, the suites with names that pytest finds, and the clock."""
        for directory in (self.suites, self.small, self.reports, self.cache, self.state):
            directory.mkdir(parents=True)
        folder = Path(__file__).parent
        for path in (folder / "suites").glob("*.py"):
            name = path.name if path.stem == "conftest" else f"test_{path.name}"
            shutil.copy(path, self.suites / name)
        library = self.folder / "clock.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O", "-o", library, folder / "clock.c", "-ldl"], check=True)
        self.jump(0)
        # The mount is private to this process: see __main__.
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SMALL}", "tmpfs", self.small], check=True)

    @contextlib.contextmanager
    def places(self, names: Sequence[str]) -> Iterator[None]:
        """Prepare these locations."""
        with contextlib.ExitStack() as stack:
            for name in names:
                self._places[name] = stack.enter_context(PLACES[name](self.folder))
            yield

    def place(self, name: str) -> Place:
        return self._places[name]

    def restore(self) -> None:
        """Undo all faults."""
        self.empty()
        self.jump(0)
        self.plug_in()

    def environment(self, cache: Path) -> Mapping[str, str]:
        return {"XDG_CACHE_HOME": str(cache), "XDG_STATE_HOME": str(self.state), "UTVM_BOARD_PATH": ""}

    # --- The clock.
    def jumping(self) -> Mapping[str, str]:
        return {"LD_PRELOAD": str(self.folder / "clock.so"), "UTVM_FAULTS_CLOCK": str(self._clock)}

    def jump(self, seconds: int) -> None:
        """Set the offset of the clock that runs see."""
        with self._clock.open("r+b" if self._clock.exists() else "wb") as file:
            file.write(struct.pack("=q", seconds))

    # --- The small disk.
    def fill(self) -> None:
        """Fill the small disk to the last byte."""
        with (self.small / "filler").open("wb", buffering=0) as file:
            for size in (1 << 20, 512):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def empty(self) -> None:
        """Empty the small disk."""
        (self.small / "filler").unlink(missing_ok=True)

    # --- A probe on a bus that is a folder; it drives our software model, which outlives the runs.
    @contextlib.contextmanager
    def chip(self) -> Iterator[None]:
        """Provide a board with a probe that can be unplugged."""
        known = boards.load(_BOARD)
        with start_virtual(known, self.folder / "chip") as chip:
            assert chip.health_match
            shutil.copytree(known.directory, self.folder / _BOARD)
            path = self.folder / _BOARD / "board.yaml"
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
            content["physical"]["select_serial"] = known.model.probe.format(port=chip.health_match["stlink"])
            path.write_text(yaml.safe_dump(content), encoding="utf-8")
            self.plug_in()
            yield

    def plugged(self) -> tuple[Sequence[str], Mapping[str, str]]:
        """Return the options that select this board, and the variables for its bus."""
        words = ("--board", str(self.folder / _BOARD), "--serial", self._serial)
        fake = ROOT / "tests" / "hil" / "usb_bus"
        return words, {"FAKE_USB": str(self._bus), "PYTHONPATH": f"{fake}:{ROOT}"}

    def plug_in(self) -> None:
        self._address = self._address % 100 + 1
        self.unplug()
        fake_usb.plug_in(self._bus, "1", self._serial, maker=MAKER, address=self._address)

    def unplug(self) -> None:
        fake_usb.unplug(self._bus, "1")

    def locks(self) -> list[Path]:
        """Return the lock files of the campaign's boards."""
        shared = shared_directory()
        locks = shared.glob(f"utvm-*{self._serial}*.lock") if shared else ()
        return [*locks, *self.state.rglob("*.lock")]


@contextlib.contextmanager
def surroundings_in(folder: Path, places: Sequence[str], usb: bool) -> Iterator[Surroundings]:
    """Provide surroundings for the length of a ``with`` block.

    Args:
        usb: with a probe that can be unplugged.
    """
    around = Surroundings(folder)
    around.prepare()
    try:
        with around.places(places), around.chip() if usb else contextlib.nullcontext():
            yield around
    finally:
        for lock in around.locks():
            lock.unlink()
        subprocess.run(["umount", around.small], check=False)
