# SPDX-License-Identifier: Apache-2.0
"""An environment is frozen if it has every locked package in its version, and no other."""

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
_DEBIAN = {f"{package.name}:{package.architecture}": package.version for package in _LOCKED.debian.packages}


@pytest.fixture
def frozen_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A location that looks like the frozen environment; returns its folder of Python packages."""
    (tmp_path / "environment.json").write_text(json.dumps({"utvm.environment": environment_digest()}))
    programs, packages = tmp_path / "bin", tmp_path / "packages"
    programs.mkdir()
    lines = "".join(f"ii \\t{name}\\t{version}\\n" for name, version in _DEBIAN.items())
    (programs / "dpkg-query").write_text(f"#!/bin/sh\nprintf '{lines}'\n")
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


def test_container_with_the_locked_packages_is_frozen(frozen_location: Path) -> None:
    assert inspect_location().environment == environment_digest()


@pytest.mark.parametrize("difference", ["another version", "one more", "one less"])
def test_container_with_other_python_packages_is_not_frozen(frozen_location: Path, difference: str) -> None:
    name, version = next(iter(_PYTHON.items()))
    changed = frozen_location / f"{name.replace('-', '_')}-{version}.dist-info"
    if difference == "one more":
        _install(frozen_location, {"numpy-of-mine": "1.0"})
    else:
        (changed / "METADATA").unlink()
        changed.rmdir()
        if difference == "another version":
            _install(frozen_location, {name: f"{version}.post1"})
    assert inspect_location().environment == ""
