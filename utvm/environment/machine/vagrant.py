# SPDX-License-Identifier: Apache-2.0
"""Vagrant, through python-vagrant, and the environment's box in it.

Boxes and keys are in a folder of our own, not the user's ``~/.vagrant.d``.
"""

import json
import os
import re
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import vagrant

from utvm.base.process import Subprocess
from utvm.base.storage.files import create_own_folder
from utvm.environment.builds import CATALOGUE, KERNEL, box_name, box_version
from utvm.environment.locked import Locked, temporary_root
from utvm.environment.machine.settings import Records
from utvm.errors import ConfigError, ProvisionError, UtvmError
from utvm.paths import ROOT, user_folder

PROVIDER = "libvirt"
_INSTALL = "sudo apt-get install vagrant vagrant-libvirt"
# Seconds after SIGTERM before Vagrant is killed; its own clean-up takes a while.
_STOP_TIMEOUT = 10.0


def vagrant_home() -> Path:
    return user_folder("data") / "vagrant"


class Vagrant(vagrant.Vagrant):  # type: ignore[misc]  # it publishes no type information
    """Vagrant for one machine; every method of python-vagrant raises ``ProvisionError`` when Vagrant fails."""

    def __init__(self, records: Records) -> None:
        if shutil.which("vagrant") is None:
            raise ProvisionError("vagrant is not installed", _INSTALL)
        self._records = records
        super().__init__(str(ROOT / "vm"))

    def boxes(self) -> list[tuple[str, str]]:
        return [(box.name, box.version) for box in self.box_list() if box.provider == PROVIDER]

    def add_box(self, catalogue: Path) -> None:
        """Add the box of a local catalogue, replacing an earlier one; clear killed downloads first."""
        shutil.rmtree(vagrant_home() / "tmp", ignore_errors=True)
        self._run_vagrant_command(["box", "add", str(catalogue), "--provider", PROVIDER, "--force"])

    def _call_vagrant_command(self, args: Sequence[str | None]) -> None:
        self._run_vagrant_command(args)

    def _run_vagrant_command(self, args: Sequence[str | None]) -> str:
        words = [word for word in args if word is not None]
        environment = {
            "VAGRANT_HOME": vagrant_home(),
            "VAGRANT_DOTFILE_PATH": self._records.vagrant,
            "VAGRANT_CHECKPOINT_DISABLE": "1",
            "VAGRANT_DEFAULT_PROVIDER": PROVIDER,
            "UTVM_MACHINE": self._records.settings,
            # Box commands need no machine, and its settings may not exist yet.
            **({"VAGRANT_VAGRANTFILE": "none"} if words[0] == "box" else {}),
            "LC_ALL": "C.UTF-8",
        }
        create_own_folder(vagrant_home())
        for_programs = "--machine-readable" in words
        command = ["env", *(f"{name}={value}" for name, value in environment.items()), "vagrant", *words]
        if not for_programs:
            # If both options are given, Vagrant follows this one.
            command.append("--no-tty")
        log = self._records.log
        with Subprocess(
            "vagrant", command, log=log, error=ProvisionError, cwd=Path(self.root), stop_timeout=_STOP_TIMEOUT
        ) as job:
            while job.running:
                time.sleep(0.02)
            output = log.read_text(encoding="utf-8", errors="replace")
            if job.exit_code != 0:
                raise _translate_error(" ".join(words[:2]), output, log)
        # Error messages go into the same log; skip them in tables.
        rows = [line for line in output.splitlines() if re.match(r"\d+,", line)]
        return "\n".join(rows) if for_programs else output


def _translate_error(what: str, output: str, log: Path) -> ProvisionError:
    if "libvirt" in output and "provider" in output and "could not be found" in output:
        return ProvisionError("Vagrant has no libvirt provider", _INSTALL)
    if "checksum of the downloaded box did not match" in output:
        return ProvisionError("the checksum of the box differs from its catalogue's", "rebuild it: ./inv vm.box")
    if "No space left" in output or "disk is full" in output.lower():
        full = os.statvfs(vagrant_home())
        return ProvisionError(
            f"the disk is full ({full.f_bavail * full.f_frsize // 1_000_000} MB free in {vagrant_home()})",
            "a machine takes twice the size of its box, and its own data; libvirt keeps them in /var/lib/libvirt",
        )
    # Progress overwrites itself with carriage returns.
    lines = [line.rpartition("\r")[2].rstrip() for line in output.splitlines()]
    last = [re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line) for line in lines if line.strip()][-12:]
    return ProvisionError(f"vagrant {what} failed; its last lines are:\n" + "\n".join(last), f"its log is {log}")


LOCAL_CATALOGUE = ROOT / "build" / "box" / CATALOGUE
"""Output of ``./inv vm.box``."""
_PATIENCE = 60.0


@dataclass(frozen=True)
class Box:
    name: str
    version: str

    @property
    def folder(self) -> Path:
        """The box's folder in Vagrant; newer versions have a subfolder per architecture."""
        return vagrant_home() / "boxes" / self.name.replace("/", "-VAGRANTSLASH-") / self.version

    @property
    def checksum(self) -> Path:
        return self.folder / "utvm.sha256"

    @property
    def kernel(self) -> Path:
        for kernel in sorted(self.folder.rglob(KERNEL)):
            return kernel
        raise ProvisionError(f"{self.folder}: the box has no kernel", f"to add it again: rm -r {self.folder}")


def locked_box(locked: Locked) -> Box:
    return Box(box_name(locked), box_version(locked))


def ensure_box(box: Box, vagrant: Vagrant, where: str, make: Callable[[], None]) -> bool:
    """Add the box to Vagrant if it is missing or its checksum has changed; return True if added.

    Args:
        where: path or URL of a catalogue; empty for the one of ``./inv vm.box``.
    """
    has_it = (box.name, box.version) in vagrant.boxes()
    if not where:
        try:
            _provider(_read(LOCAL_CATALOGUE.as_uri()), box, "")
        except UtvmError:  # ./inv vm.box did not build this box.
            if has_it:
                return False
            make()
    url = _as_url(where)
    provider = _provider(_read(url), box, where or str(LOCAL_CATALOGUE))
    if has_it and box.checksum.exists() and box.checksum.read_text(encoding="utf-8") == provider["checksum"]:
        return False
    # Vagrant resolves a relative path in a catalogue against its own working directory.
    absolute = {**provider, "url": urllib.parse.urljoin(url, provider["url"])}
    only = {"name": box.name, "versions": [{"version": box.version, "providers": [absolute]}]}
    with temporary_root(vagrant_home()) as folder:
        catalogue = folder / "catalogue.json"
        catalogue.write_text(json.dumps(only), encoding="utf-8")
        vagrant.add_box(catalogue)
    box.checksum.write_text(provider["checksum"], encoding="utf-8")
    return True


def _provider(catalogue: dict[str, Any], box: Box, where: str) -> dict[str, str]:
    if catalogue.get("name") != box.name:
        raise ConfigError(
            f"{where} has the box {catalogue.get('name')}, the checkout's locks require {box.name}",
            "build the required one: ./inv vm.box",
        )
    for version in catalogue["versions"]:
        for provider in version["providers"]:
            facts = (version["version"], provider["name"], provider["checksum_type"])
            if facts == (box.version, PROVIDER, "sha256"):
                return dict(provider)
    raise ConfigError(f"{where} has no version {box.version} for {PROVIDER}", "build it: ./inv vm.box")


def _as_url(where: str) -> str:
    if urllib.parse.urlsplit(where).scheme in ("http", "https", "file"):
        return where
    path = Path(where).resolve() if where else LOCAL_CATALOGUE
    if not path.is_file():
        raise ConfigError(
            f"there is no box: {path} does not exist", "build it: ./inv vm.box; or name one: vm.up --box URL"
        )
    return path.as_uri()


def _read(url: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE) as reply:
            catalogue = json.load(reply)
    except (OSError, urllib.error.URLError) as error:
        reason = getattr(error, "reason", error)
        raise ProvisionError(f"{url}: cannot be fetched: {reason}") from error
    except ValueError as error:
        raise ConfigError(f"{url} is not a box catalogue: {error}") from error
    if not isinstance(catalogue, dict) or not isinstance(catalogue.get("versions"), list):
        raise ConfigError(f"{url} is not a box catalogue", "./inv vm.box writes one as utvm.json")
    return catalogue
