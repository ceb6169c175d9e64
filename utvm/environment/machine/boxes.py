"""Having the environment's box in Vagrant: from a catalogue in a folder, or anywhere on the web."""

import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utvm.environment.box import box as written
from utvm.environment.drafts import draft
from utvm.environment.locked import Locked
from utvm.environment.machine.vagrant import PROVIDER, Vagrant, vagrant_home
from utvm.errors import ConfigError, ProvisionError
from utvm.toolchain import ROOT

CATALOGUE = ROOT / "build" / "box" / written.CATALOGUE
"""Where ``./inv vm.box`` writes it."""
_KERNEL = "vmlinuz"
_PATIENCE = 60.0


@dataclass(frozen=True)
class Box:
    """The box of one state of the locks."""

    name: str
    version: str

    @property
    def kernel(self) -> Path:
        """Its kernel, once Vagrant has it.

        Raises:
            ProvisionError: it is not where Vagrant puts boxes.
        """
        folder = vagrant_home() / "boxes" / self.name.replace("/", "-VAGRANTSLASH-") / self.version
        # Newer Vagrants have a folder for each architecture.
        found = sorted(folder.rglob(_KERNEL))
        if not found:
            raise ProvisionError(
                f"{folder}: the box has no {_KERNEL}",
                f"remove it, so that it is added anew: rm -r {folder}",
            )
        return found[0]


def box_of(locked: Locked) -> Box:
    """Return the box that the locks ask for."""
    return Box(written.box_name(locked), written.box_version(locked))


def have(box: Box, vagrant: Vagrant, where: str) -> bool:
    """Have Vagrant have the box; return whether it had to be added.

    Args:
        where: path or URL of a catalogue; empty for the one that ``./inv vm.box`` wrote.

    Raises:
        ConfigError: there is no catalogue, or it is of another box.
        ProvisionError: the box cannot be had, or is not what the catalogue says.
    """
    if (box.name, box.version) in vagrant.boxes():
        return False
    url = _as_url(where)
    catalogue = _read(url)
    if catalogue.get("name") != box.name:
        raise ConfigError(
            f"{where or CATALOGUE} has the box {catalogue.get('name')}, the checkout's locks ask for {box.name}",
            "make the one that they ask for: ./inv vm.box",
        )
    # Vagrant takes a path in a catalogue for one below its own working directory.
    for provider in (one for version in catalogue["versions"] for one in version["providers"]):
        provider["url"] = urllib.parse.urljoin(url, provider["url"])
    wanted = [version for version in catalogue["versions"] if version["version"] == box.version]
    if not any(provider["name"] == PROVIDER for version in wanted for provider in version["providers"]):
        raise ConfigError(
            f"{where or CATALOGUE} has no version {box.version} for {PROVIDER}", "make it: ./inv vm.box"
        )
    with draft(vagrant_home()) as folder:
        absolute = folder / "catalogue.json"
        absolute.write_text(json.dumps({**catalogue, "versions": wanted}), encoding="utf-8")
        vagrant.add_box(absolute)
    return True


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
