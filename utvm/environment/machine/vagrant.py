# SPDX-License-Identifier: Apache-2.0
"""Vagrant, through python-vagrant: every call is a process that we own, and a failure is one message.

Its boxes and keys are in a folder of our own: what the user has in ``~/.vagrant.d`` is neither seen nor changed.
"""

import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import platformdirs
import vagrant

from utvm.base.process import service
from utvm.environment.machine.records import Records
from utvm.errors import ProvisionError
from utvm.paths import ROOT

PROVIDER = "libvirt"
_INSTALL = "sudo apt-get install vagrant vagrant-libvirt"
# What Vagrant itself does on SIGTERM takes a while; it is asked to end in order before it is made to.
_STOP_TIMEOUT = 10.0


def vagrant_home() -> Path:
    """Return the folder that Vagrant keeps boxes in, for us."""
    return platformdirs.user_data_path("utvm") / "vagrant"


class Vagrant(vagrant.Vagrant):  # type: ignore[misc]  # it publishes no type information
    """Vagrant for one machine; every method of python-vagrant raises ``ProvisionError`` when Vagrant fails."""

    def __init__(self, records: Records) -> None:
        if shutil.which("vagrant") is None:
            raise ProvisionError("vagrant is not installed", _INSTALL)
        self._records = records
        super().__init__(str(ROOT / "vm"))

    def boxes(self) -> list[tuple[str, str]]:
        """Return the boxes that it has for libvirt: name and version."""
        return [(box.name, box.version) for box in self.box_list() if box.provider == PROVIDER]

    def add_box(self, catalogue: Path) -> None:
        """Add the box that a catalogue on this computer describes, in the place of an earlier one.

        What a killed download left goes first.
        """
        shutil.rmtree(vagrant_home() / "tmp", ignore_errors=True)
        self._run_vagrant_command(["box", "add", str(catalogue), "--provider", PROVIDER, "--force"])

    def _call_vagrant_command(self, args: Sequence[str | None]) -> None:
        self._run_vagrant_command(args)

    def _run_vagrant_command(self, args: Sequence[str | None]) -> str:
        """Run it to its end and return all that it printed."""
        words = [word for word in args if word is not None]
        environment = {
            "VAGRANT_HOME": vagrant_home(),
            "VAGRANT_DOTFILE_PATH": self._records.vagrant,
            "VAGRANT_CHECKPOINT_DISABLE": "1",
            "VAGRANT_DEFAULT_PROVIDER": PROVIDER,
            "UTVM_MACHINE": self._records.settings,
            # What is about boxes is about no machine: it may not be written yet.
            **({"VAGRANT_VAGRANTFILE": "none"} if words[0] == "box" else {}),
            "LC_ALL": "C.UTF-8",
        }
        vagrant_home().mkdir(parents=True, exist_ok=True)
        for_programs = "--machine-readable" in words
        command = ["env", *(f"{name}={value}" for name, value in environment.items()), "vagrant", *words]
        if not for_programs:
            # Of the two options, Vagrant follows this one.
            command.append("--no-tty")
        log = self._records.log
        with service.Subprocess(
            "vagrant",
            command,
            log=log,
            error=ProvisionError,
            cwd=Path(self.root),
            stop_timeout=_STOP_TIMEOUT,
        ) as job:
            while job.running:
                time.sleep(0.02)
            said = log.read_text(encoding="utf-8", errors="replace")
            if job.exit_code != 0:
                raise _explained(" ".join(words[:2]), said, log)
        # What it complains about goes into the same log, and is no row of a table.
        rows = [line for line in said.splitlines() if re.match(r"\d+,", line)]
        return "\n".join(rows) if for_programs else said


def _explained(what: str, said: str, log: Path) -> ProvisionError:
    if "libvirt" in said and "provider" in said and "could not be found" in said:
        return ProvisionError("Vagrant does not know libvirt", _INSTALL)
    if "checksum of the downloaded box did not match" in said:
        return ProvisionError(
            "the box is not what its catalogue says: its checksum differs", "make it anew: ./inv vm.box"
        )
    if "No space left" in said or "disk is full" in said.lower():
        full = os.statvfs(vagrant_home())
        return ProvisionError(
            f"the disk is full ({full.f_bavail * full.f_frsize // 1_000_000} MB free in {vagrant_home()})",
            "a machine takes its box twice, and what is written in it; libvirt keeps them in /var/lib/libvirt",
        )
    # Progress is written over itself with carriage returns.
    lines = [line.rpartition("\r")[2].rstrip() for line in said.splitlines()]
    last = [re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line) for line in lines if line.strip()][-12:]
    return ProvisionError(
        f"vagrant {what} failed, and its last words were:\n" + "\n".join(last), f"its log is {log}"
    )
