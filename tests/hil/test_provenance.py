# SPDX-License-Identifier: Apache-2.0
"""What a run was made with: the same in every place of one checkout, another when anything of it changed."""

import os
import re
import shutil
from pathlib import Path

import pytest

from utvm import boards
from utvm.errors import ConfigError, ProvisionError
from utvm.hil.report import checkout_digest, describe_environment
from utvm.paths import PROVISION


def test_two_looks_at_one_machine_agree() -> None:
    board = boards.load("stm32f746")
    first = describe_environment(board)
    assert describe_environment(board) == first
    assert re.fullmatch("[0-9a-f]{64}", first.digest)
    tools = first.place.tools
    assert set(tools) == {"python", "tvm", "openocd", "gcc", "unicorn", "utvm"}
    assert re.match(r"\d+\.\d+", tools["openocd"])
    assert "arm-none-eabi" in tools["gcc"]


@pytest.mark.parametrize("name", ["debian.lock", "pylock.toml", "environment.yaml"])
def test_another_lock_is_another_environment(name: str, tmp_path: Path) -> None:
    other = tmp_path / "provision"
    shutil.copytree(PROVISION, other)
    assert checkout_digest(other) == checkout_digest()
    with (other / name).open("a") as file:
        file.write("\n")
    assert checkout_digest(other) != checkout_digest()


def test_installed_and_requested_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = describe_environment(boards.load("stm32f746"))
    tool = tmp_path / "dpkg-query"
    # One package in another version.
    tool.write_text(f"#!/bin/sh\n'{shutil.which('dpkg-query')}' \"$@\" | sed '1s/$/+mine/'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    other = describe_environment(boards.load("stm32f746"))
    assert (other.digest, other.place.tools) == (here.digest, here.place.tools)
    assert other.place.installed != here.place.installed


def test_a_variable_makes_no_place_a_frozen_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UTVM_PLACE", "docker")
    place = describe_environment(boards.load("stm32f746")).place
    assert (place.kind, place.frozen, place.environment) == ("docker", False, "")
    assert place.title == "in docker, with other tools than the lock's"


def test_a_variable_that_names_no_place_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UTVM_PLACE", "moon")
    with pytest.raises(ConfigError, match="unknown location 'moon'"):
        describe_environment(boards.load("stm32f746"))


def test_a_machine_without_openocd_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "openocd" else which(name))
    with pytest.raises(ProvisionError) as caught:
        describe_environment(boards.load("stm32f746"))
    assert "apt-get install openocd" in caught.value.hint
