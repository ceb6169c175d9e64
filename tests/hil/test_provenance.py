# SPDX-License-Identifier: Apache-2.0
"""The environment of a run: equal in every location of a checkout, different after any change."""

import os
import re
import shutil
from pathlib import Path

import pytest

from utvm import boards
from utvm.errors import ConfigError, ProvisionError
from utvm.hil.report import checkout_digest, describe_environment
from utvm.paths import PROVISION


def test_environment_is_described_consistently() -> None:
    board = boards.load("stm32f746")
    first = describe_environment(board)
    assert describe_environment(board) == first
    assert re.fullmatch("[0-9a-f]{64}", first.digest)
    tools = first.place.tools
    assert set(tools) == {"python", "tvm", "openocd", "gcc", "unicorn", "utvm"}
    assert re.match(r"\d+\.\d+", tools["openocd"])
    assert "arm-none-eabi" in tools["gcc"]


@pytest.mark.parametrize("name", ["debian.lock", "pylock.toml", "environment.yaml"])
def test_changed_lock_is_another_environment(name: str, tmp_path: Path) -> None:
    other = tmp_path / "provision"
    shutil.copytree(PROVISION, other)
    assert checkout_digest(other) == checkout_digest()
    with (other / name).open("a") as file:
        file.write("\n")
    assert checkout_digest(other) != checkout_digest()


def test_installed_and_requested_packages_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = describe_environment(boards.load("stm32f746"))
    tool = tmp_path / "dpkg-query"
    # One package has another version.
    tool.write_text(f"#!/bin/sh\n'{shutil.which('dpkg-query')}' \"$@\" | sed '1s/$/+mine/'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    after = describe_environment(boards.load("stm32f746"))
    assert (after.digest, after.place.tools) == (before.digest, before.place.tools)
    assert after.place.installed != before.place.installed


def test_variable_alone_is_no_frozen_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UTVM_PLACE", "docker")
    place = describe_environment(boards.load("stm32f746")).place
    assert (place.kind, place.frozen, place.environment) == ("docker", False, "")
    assert place.title == "in docker, with other tools than the lock's"


def test_variable_with_unknown_location_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UTVM_PLACE", "moon")
    with pytest.raises(ConfigError, match="unknown location 'moon'"):
        describe_environment(boards.load("stm32f746"))


def test_missing_openocd_has_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "openocd" else which(name))
    with pytest.raises(ProvisionError) as caught:
        describe_environment(boards.load("stm32f746"))
    assert "apt-get install openocd" in caught.value.hint
