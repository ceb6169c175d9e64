# SPDX-License-Identifier: Apache-2.0
"""What is kept of a checkout's machine, outside of the checkout: removing ``build`` must not cost a machine.

The checkout and the folder that its records are in make the machine's name: two checkouts have two machines, and
so has somebody with records elsewhere.
"""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from utvm.errors import ProvisionError
from utvm.paths import ROOT

PREFIX = "utvm-"
"""All machines of ours are called so, and then a hash."""


@dataclass(frozen=True)
class Records:
    """The records of one machine."""

    name: str
    checkout: Path
    folder: Path

    @property
    def description(self) -> str:
        """What libvirt has as its description: by that we know it as ours."""
        return f"utvm: checkout {self.checkout}, records {self.folder}"

    @property
    def settings(self) -> Path:
        """The JSON for Vagrant."""
        return self.folder / "settings.json"

    @property
    def vagrant(self) -> Path:
        """What Vagrant keeps of the machine."""
        return self.folder / "vagrant"

    @property
    def key(self) -> Path:
        """The machine's own private key, which Vagrant makes."""
        return self.vagrant / "machines" / self.name / "libvirt" / "private_key"

    @property
    def known_hosts(self) -> Path:
        """The guest's own host key, which it made at its first start."""
        return self.folder / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        """For ``ssh -F``."""
        return self.folder / "ssh_config"

    @property
    def log(self) -> Path:
        """What Vagrant said last."""
        return self.folder / "vagrant.log"

    @property
    def used(self) -> bool:
        """Whether a command ran in the machine since it was as new: then its disk may hold somebody's work."""
        return self._used.exists()

    @property
    def made(self) -> dict[str, str] | None:
        """What the machine was made of, once it is whole; None before."""
        if not self._made.exists():
            return None
        found: dict[str, str] = json.loads(self._made.read_text(encoding="utf-8"))
        return found

    def begin(self) -> None:
        """Make the folder."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ProvisionError(
                f"{self.folder}: cannot be made: {error.strerror}", "set XDG_STATE_HOME"
            ) from error

    def finish(self, facts: dict[str, str]) -> None:
        """Say that the machine is whole. At once or not at all, also on a full disk."""
        draft = self._made.with_suffix(".draft")
        draft.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        draft.rename(self._made)

    def mark_used(self, used: bool = True) -> None:
        """Remember whether the machine is still as new."""
        if used:
            self._used.touch()
        else:
            self._used.unlink(missing_ok=True)

    def remove(self) -> None:
        """Forget the machine; that it was whole, first of all."""
        self._made.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _made(self) -> Path:
        return self.folder / "made.json"

    @property
    def _used(self) -> Path:
        return self.folder / "used"


def records_of(checkout: Path = ROOT, state: Path | None = None) -> Records:
    """Return the records of a checkout's machine, whether there is one or not.

    Args:
        state: where records are kept; by default among what this user's programs keep.
    """
    place = (state or _state()) / "machines"
    name = PREFIX + hashlib.sha256(f"{checkout}\n{place}".encode()).hexdigest()[:10]
    return Records(name, checkout, place / name)


def records_of_test() -> Records:
    """Return the records of the machine that a box is tested with, which is no more when its test has ended."""
    return records_of(state=_state() / "test")


def _state() -> Path:
    return platformdirs.user_state_path("utvm")
