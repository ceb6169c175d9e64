# SPDX-License-Identifier: Apache-2.0
"""Records of a checkout's machine, outside of the checkout: removing ``build`` must not lose a machine.

The machine's name is a hash of the checkout and the records' folder, so that each checkout has its own machine.
"""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from utvm.base.storage.files import create_own_folder
from utvm.errors import ProvisionError
from utvm.paths import ROOT, user_folder

PREFIX = "utvm-"
"""Prefix of our machines' names."""


@dataclass(frozen=True)
class Records:
    """The records of one machine."""

    name: str
    checkout: Path
    folder: Path

    @property
    def description(self) -> str:
        return f"utvm: checkout {self.checkout}, records {self.folder}"

    @property
    def settings(self) -> Path:
        return self.folder / "settings.json"

    @property
    def vagrant(self) -> Path:
        return self.folder / "vagrant"

    @property
    def key(self) -> Path:
        return self.vagrant / "machines" / self.name / "libvirt" / "private_key"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        return self.folder / "ssh_config"

    @property
    def log(self) -> Path:
        return self.folder / "vagrant.log"

    @property
    def is_used(self) -> bool:
        """True if a command has run since the snapshot ``ready``: the disk may hold somebody's work."""
        return self._used_mark.exists()

    @property
    def facts(self) -> dict[str, str] | None:
        """Box and settings of a complete machine; None before."""
        if not self._facts.exists():
            return None
        facts: dict[str, str] = json.loads(self._facts.read_text(encoding="utf-8"))
        return facts

    def create(self) -> None:
        try:
            create_own_folder(self.folder)
        except OSError as error:
            raise ProvisionError(
                f"{self.folder}: cannot be made: {error.strerror}", "set XDG_STATE_HOME"
            ) from error

    def finish(self, facts: dict[str, str]) -> None:
        """Mark the machine as complete, atomically."""
        temporary = self._facts.with_suffix(".draft")
        temporary.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        temporary.rename(self._facts)

    def mark_used(self, used: bool = True) -> None:
        if used:
            self._used_mark.touch()
        else:
            self._used_mark.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the records, first the mark of a complete machine."""
        self._facts.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _facts(self) -> Path:
        return self.folder / "made.json"

    @property
    def _used_mark(self) -> Path:
        return self.folder / "used"


def records_of(checkout: Path = ROOT, state: Path | None = None) -> Records:
    """Records of a checkout's machine, whether it exists or not.

    Args:
        state: parent folder; by default the user's state folder.
    """
    parent = (state or _state()) / "machines"
    name = PREFIX + hashlib.sha256(f"{checkout}\n{parent}".encode()).hexdigest()[:10]
    return Records(name, checkout, parent / name)


def records_of_test() -> Records:
    """Records of the machine that tests a box; it is removed after the test."""
    return records_of(state=_state() / "test")


def _state() -> Path:
    return user_folder("state")
