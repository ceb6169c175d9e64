# SPDX-License-Identifier: Apache-2.0
"""Whether this is the frozen environment: every package of it, in its version, and no other."""

import json
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

from utvm.environment.locked import load_lock_files
from utvm.provenance.location import environment_digest, inspect_location

_LOCKED = load_lock_files()
_PYTHON = {wheel.name: wheel.version for wheel in _LOCKED.wheels}
_DEBIAN = {f"{each.name}:{each.architecture}": each.version for each in _LOCKED.debian.packages}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place that is the frozen environment for all that can be seen of it."""
    (tmp_path / "environment.json").write_text(json.dumps({"utvm.environment": environment_digest()}))
    programs, packages = tmp_path / "bin", tmp_path / "packages"
    programs.mkdir()
    listed = "".join(f"ii \\t{name}\\t{version}\\n" for name, version in _DEBIAN.items())
    (programs / "dpkg-query").write_text(f"#!/bin/sh\nprintf '{listed}'\n")
    (programs / "dpkg-query").chmod(0o755)
    _install(packages, _PYTHON)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda _kind: str(packages))
    return packages


def _install(folder: Path, versions: Mapping[str, str]) -> None:
    for name, version in versions.items():
        package = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        package.mkdir(parents=True)
        (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_a_container_that_has_what_the_locks_say_is_frozen(place: Path) -> None:
    assert inspect_location().environment == environment_digest()


@pytest.mark.parametrize("difference", ["another version", "one more", "one less"])
def test_a_container_whose_python_packages_differ_is_not(place: Path, difference: str) -> None:
    name, version = next(iter(_PYTHON.items()))
    changed = place / f"{name.replace('-', '_')}-{version}.dist-info"
    if difference == "one more":
        _install(place, {"numpy-of-mine": "1.0"})
    else:
        (changed / "METADATA").unlink()
        changed.rmdir()
        if difference == "another version":
            _install(place, {name: f"{version}.post1"})
    assert inspect_location().environment == ""
