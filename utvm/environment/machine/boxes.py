# SPDX-License-Identifier: Apache-2.0
"""Having the environment's box in Vagrant: from a catalogue in a folder, or anywhere on the web."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utvm.environment.box import box as written
from utvm.environment.locked import Locked
from utvm.environment.machine.vagrant import PROVIDER, Vagrant, vagrant_home
from utvm.environment.temporary_roots import draft
from utvm.errors import ConfigError, ProvisionError, UtvmError
from utvm.paths import ROOT

CATALOGUE = ROOT / "build" / "box" / written.CATALOGUE
"""Where ``./inv vm.box`` writes it."""
_PATIENCE = 60.0


@dataclass(frozen=True)
class Box:
    """The box of one state of the locks."""

    name: str
    version: str

    @property
    def folder(self) -> Path:
        """Where Vagrant keeps it. Newer Vagrants have a folder for each architecture in there."""
        return vagrant_home() / "boxes" / self.name.replace("/", "-VAGRANTSLASH-") / self.version

    @property
    def checksum(self) -> Path:
        """Where we keep what its catalogue said when it was added."""
        return self.folder / "utvm.sha256"

    @property
    def kernel(self) -> Path:
        """Its kernel, once Vagrant has it."""
        found = sorted(self.folder.rglob(written.KERNEL))
        if not found:
            raise ProvisionError(
                f"{self.folder}: the box has no kernel", f"have it added anew: rm -r {self.folder}"
            )
        return found[0]


def box_of(locked: Locked) -> Box:
    """Return the box that the locks ask for."""
    return Box(written.box_name(locked), written.box_version(locked))


def have(box: Box, vagrant: Vagrant, where: str, make: Callable[[], None]) -> bool:
    """Have Vagrant have the box; return whether it had to be added.

    A box is made by more than the locks, so a catalogue may come to have other bytes under the same name and
    version. Those take the place of what Vagrant has.

    Args:
        where: path or URL of a catalogue; empty for the one that ``./inv vm.box`` wrote.
        make: makes the box as ``./inv vm.box`` does, for when it did not yet, or from other locks.
    """
    has_it = (box.name, box.version) in vagrant.boxes()
    if not where and not _is_made(box):
        if has_it:
            return False
        make()
    url = _as_url(where)
    provider = _provider(_read(url), box, where or str(CATALOGUE))
    if has_it and box.checksum.exists() and box.checksum.read_text(encoding="utf-8") == provider["checksum"]:
        return False
    # Vagrant takes a path in a catalogue for one below its own working directory.
    absolute = {**provider, "url": urllib.parse.urljoin(url, provider["url"])}
    only = {"name": box.name, "versions": [{"version": box.version, "providers": [absolute]}]}
    with draft(vagrant_home()) as folder:
        catalogue = folder / "catalogue.json"
        catalogue.write_text(json.dumps(only), encoding="utf-8")
        vagrant.add_box(catalogue)
    box.checksum.write_text(provider["checksum"], encoding="utf-8")
    return True


def _is_made(box: Box) -> bool:
    """Return whether ``./inv vm.box`` made this box last."""
    try:
        _provider(_read(CATALOGUE.as_uri()), box, "")
    except UtvmError:
        return False
    return True


def _provider(catalogue: dict[str, Any], box: Box, where: str) -> dict[str, str]:
    """Return what a catalogue says of a box: where it is, and its checksum."""
    if catalogue.get("name") != box.name:
        raise ConfigError(
            f"{where} has the box {catalogue.get('name')}, the checkout's locks ask for {box.name}",
            "make the one that they ask for: ./inv vm.box",
        )
    for version in catalogue["versions"]:
        for provider in version["providers"]:
            if (version["version"], provider["name"], provider["checksum_type"]) == (
                box.version,
                PROVIDER,
                "sha256",
            ):
                return dict(provider)
    raise ConfigError(f"{where} has no version {box.version} for {PROVIDER}", "make it: ./inv vm.box")


def _as_url(where: str) -> str:
    if urllib.parse.urlsplit(where).scheme in ("http", "https", "file"):
        return where
    path = Path(where).resolve() if where else CATALOGUE
    if not path.is_file():
        raise ConfigError(
            f"there is no box: {path} does not exist",
            "make it: ./inv vm.box; or say where one is: vm.up --box URL",
        )
    return path.as_uri()


def _read(url: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE) as answer:
            found = json.load(answer)
    except (OSError, urllib.error.URLError) as error:
        reason = getattr(error, "reason", error)
        raise ProvisionError(f"{url}: cannot be fetched: {reason}") from error
    except ValueError as error:
        raise ConfigError(f"{url} is no catalogue of a box: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("versions"), list):
        raise ConfigError(f"{url} is no catalogue of a box", "./inv vm.box writes one as utvm.json")
    return found
