# SPDX-License-Identifier: Apache-2.0
"""udev rules for probes: what real udev makes of them, and how they come onto a machine and stay off it."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.probe.device_tree import judge, missing, plug_in
from utvm import boards
from utvm.cli.board_udev import rules_for_boards
from utvm.errors import ConfigError, ProvisionError
from utvm.probe import udev

# One that no other rules know: OpenOCD's, where they are installed, say the same of an ST-Link.
_PROBE = (0xCAFE, 0x0001)
_RULES = udev.rules({(0x0483, 0x374B): ["stm32f746"], _PROBE: ["mine", "hers"]})
_A_HUB = (0x1D6B, 0x0002)


def test_udev_rules_cover_every_probe_and_no_other() -> None:
    text = rules_for_boards()
    for board in boards.probe_boards():
        for probe in board.probes:
            wanted = f'ATTRS{{idVendor}}=="{probe.vendor:04x}", ATTRS{{idProduct}}=="{probe.product:04x}"'
            assert wanted in text
            assert re.search(rf"# .*\b{board.name}\b.*\n{re.escape(wanted)}", text)
    modes = re.findall(r'MODE="(\d+)"', text)
    assert modes
    assert all(mode.endswith("0") for mode in modes)
    # udev reads them by name: OpenOCD's before ours, and the one that hands out access after.
    assert sorted(["60-openocd.rules", udev.NAME, "73-seat-late.rules"])[1] == udev.NAME


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    if lacking := missing():
        pytest.skip(f"this machine lacks {lacking}")
    return tmp_path / "tree"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The rules, in a folder of their own."""
    place = tmp_path / "rules.d"
    place.mkdir()
    (place / udev.NAME).write_text(_RULES)
    return place


def _complaints(said: str) -> list[str]:
    """What udev has to say of the rules themselves: a file, a line, and no device before it."""
    return [line for line in said.splitlines() if re.match(rf"\S*{udev.NAME}:\d+ ", line)]


def test_udev_grants_the_seat_and_the_group(tree: Path, folder: Path) -> None:
    device, _ = plug_in(tree, *_PROBE)
    said = judge(tree, folder, device)
    assert [line for line in _complaints(said) if "Unknown group" not in line] == []
    assert re.search(rf"{udev.NAME}:\d+ MODE 0660", said)
    assert re.search(rf"{udev.NAME}:\d+ GROUP \d+", said)
    assert "run: 'uaccess'" in said
    assert "ID_MM_DEVICE_IGNORE=1" in said


def test_udev_leaves_the_serial_line_with_its_group(tree: Path, folder: Path) -> None:
    _, line = plug_in(tree, *_PROBE)
    said = judge(tree, folder, line)
    assert not re.search(rf"{udev.NAME}:\d+ (MODE|GROUP)", said)
    assert "run: 'uaccess'" in said
    assert "ID_MM_DEVICE_IGNORE=1" in said


def test_udev_leaves_other_devices_alone(tree: Path, folder: Path) -> None:
    for device in plug_in(tree, *_A_HUB):
        said = judge(tree, folder, device)
        assert f"/{udev.NAME}" in said
        assert not re.search(rf"{udev.NAME}:\d+", said)
        assert "uaccess" not in said.replace("70-uaccess.rules", "")
        assert "ID_MM_DEVICE_IGNORE" not in said


def test_udev_complains_of_a_mistake(tree: Path, folder: Path) -> None:
    """So its silence in the other tests says something."""
    (folder / udev.NAME).write_text(_RULES.replace('TAG+="uaccess"', 'TAGGED+="uaccess"'))
    said = judge(tree, folder, plug_in(tree, *_PROBE)[0])
    assert len(_complaints(said)) == 1
    assert "run: 'uaccess'" not in said


def test_udev_understands_the_rules_for_all_boards(tree: Path, folder: Path) -> None:
    (folder / udev.NAME).write_text(rules_for_boards())
    said = judge(tree, folder, plug_in(tree, *_A_HUB)[0])
    assert [line for line in _complaints(said) if "Unknown group" not in line] == []


class Machine:
    """A folder for rules, and stand-ins for what only a machine with udev and sudo has: they write down calls."""

    def __init__(self, place: Path) -> None:
        self.rules, self.control, self._calls = place / "rules.d", place / "control", place / "calls"
        self.rules.mkdir()
        self.control.touch()
        self._calls.touch()
        self.commands = place / "bin"
        self.commands.mkdir()
        self._command("udevadm", "")
        self._command("sudo", 'exec "$@"')

    def _command(self, name: str, rest: str) -> None:
        path = self.commands / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self._calls}\n{rest}\n')
        path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines()

    def install(self, text: str) -> None:
        udev.install(text, self.rules, self.control)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", f"{made.commands}:{os.environ['PATH']}")
    return made


def test_they_are_installed_for_all_to_read_and_applied(machine: Machine) -> None:
    for text in (rules_for_boards(), rules_for_boards(), udev.rules({})):
        machine.install(text)
        path = machine.rules / udev.NAME
        assert path.read_text() == text == udev.installed_rules(machine.rules)
        assert path.stat().st_mode & 0o777 == 0o644
    udevadm = [call for call in machine.calls if call.startswith("udevadm")]
    assert udevadm[0] == "udevadm control --reload"
    assert udevadm[1].startswith("udevadm trigger --action=change --subsystem-match=usb ")
    assert udevadm == udevadm[:2] * 3


def test_without_root_every_step_is_sudo_s(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    machine.install(rules_for_boards())
    asked = [call.split()[1] for call in machine.calls if call.startswith("sudo")]
    assert asked == ["install", "udevadm", "udevadm"]
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ProvisionError, match="no sudo") as caught:
        machine.install(rules_for_boards())
    assert "install -m 644 60-utvm.rules" in caught.value.hint


def test_a_step_that_fails_is_told_with_what_to_do_by_hand(machine: Machine) -> None:
    (machine.commands / "udevadm").write_text("#!/bin/sh\necho no such daemon >&2\nexit 1\n")
    with pytest.raises(ProvisionError, match="no such daemon") as caught:
        machine.install(rules_for_boards())
    assert "udevadm control --reload" in caught.value.hint


@pytest.mark.parametrize("other", ["file", "link"])
def test_a_file_of_somebody_else_s_is_left_alone(machine: Machine, other: str) -> None:
    path = machine.rules / udev.NAME
    if other == "file":
        path.write_text("# mine\n")
    else:
        # How an administrator switches rules off.
        path.symlink_to("/dev/null")
    with pytest.raises(ConfigError, match="was not written by utvm"):
        machine.install(rules_for_boards())
    assert path.read_text() == ("# mine\n" if other == "file" else "")
    assert udev.installed_rules(machine.rules) == ""
    assert machine.calls == []


def test_a_container_is_told_where_rules_belong(machine: Machine) -> None:
    machine.control.unlink()
    with pytest.raises(ProvisionError, match="udev does not run here") as caught:
        machine.install(rules_for_boards())
    assert "--output" in caught.value.hint
    assert list(machine.rules.iterdir()) == []
