# SPDX-License-Identifier: Apache-2.0
"""udev rules for probes: their effect in the real udev, and their installation."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.probe.device_tree import missing, plug_in, udev_output
from utvm import boards
from utvm.cli.root_doctor import rules_for_boards
from utvm.errors import ConfigError, ProvisionError
from utvm.probe import udev

# A device without other rules: OpenOCD's rules, if installed, are the same for an ST-Link.
_PROBE = (0xCAFE, 0x0001)
_RULES = udev.rules({(0x0483, 0x374B): ["stm32f746"], _PROBE: ["mine", "hers"]})
_HUB = (0x1D6B, 0x0002)


def test_udev_rules_cover_every_probe_and_no_other() -> None:
    text = rules_for_boards()
    for board in boards.probe_boards():
        for probe in board.probes:
            rule = f'ATTRS{{idVendor}}=="{probe.vendor:04x}", ATTRS{{idProduct}}=="{probe.product:04x}"'
            assert rule in text
            assert re.search(rf"# .*\b{board.name}\b.*\n{re.escape(rule)}", text)
    modes = re.findall(r'MODE="(\d+)"', text)
    assert modes
    assert all(mode.endswith("0") for mode in modes)
    # udev reads the files by name: OpenOCD's before utvm's, and the file that grants access after it.
    assert sorted(["60-openocd.rules", udev.NAME, "73-seat-late.rules"])[1] == udev.NAME


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    if reason := missing():
        pytest.skip(f"this machine lacks {reason}")
    return tmp_path / "tree"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The rules, in a folder of their own."""
    rules = tmp_path / "rules.d"
    rules.mkdir()
    (rules / udev.NAME).write_text(_RULES)
    return rules


def _messages_about_rules(output: str) -> list[str]:
    """udev's messages about the rules: a file and line, without a device."""
    return [line for line in output.splitlines() if re.match(rf"\S*{udev.NAME}:\d+ ", line)]


def test_udev_grants_the_seat_and_the_group(tree: Path, folder: Path) -> None:
    device, _ = plug_in(tree, *_PROBE)
    output = udev_output(tree, folder, device)
    assert [line for line in _messages_about_rules(output) if "Unknown group" not in line] == []
    assert re.search(rf"{udev.NAME}:\d+ MODE 0660", output)
    assert re.search(rf"{udev.NAME}:\d+ GROUP \d+", output)
    assert "run: 'uaccess'" in output
    assert "ID_MM_DEVICE_IGNORE=1" in output


def test_udev_leaves_the_serial_line_with_its_group(tree: Path, folder: Path) -> None:
    _, line = plug_in(tree, *_PROBE)
    output = udev_output(tree, folder, line)
    assert not re.search(rf"{udev.NAME}:\d+ (MODE|GROUP)", output)
    assert "run: 'uaccess'" in output
    assert "ID_MM_DEVICE_IGNORE=1" in output


def test_udev_leaves_other_devices_alone(tree: Path, folder: Path) -> None:
    for device in plug_in(tree, *_HUB):
        output = udev_output(tree, folder, device)
        assert f"/{udev.NAME}" in output
        assert not re.search(rf"{udev.NAME}:\d+", output)
        assert "uaccess" not in output.replace("70-uaccess.rules", "")
        assert "ID_MM_DEVICE_IGNORE" not in output


def test_udev_reports_an_error(tree: Path, folder: Path) -> None:
    """Without errors, udev prints no such message in the other tests."""
    (folder / udev.NAME).write_text(_RULES.replace('TAG+="uaccess"', 'TAGGED+="uaccess"'))
    output = udev_output(tree, folder, plug_in(tree, *_PROBE)[0])
    assert len(_messages_about_rules(output)) == 1
    assert "run: 'uaccess'" not in output


def test_udev_accepts_the_rules_for_all_boards(tree: Path, folder: Path) -> None:
    (folder / udev.NAME).write_text(rules_for_boards())
    output = udev_output(tree, folder, plug_in(tree, *_HUB)[0])
    assert [line for line in _messages_about_rules(output) if "Unknown group" not in line] == []


class Machine:
    """A folder for rules, and fake udevadm and sudo, which record their calls."""

    def __init__(self, folder: Path) -> None:
        self.rules, self.control, self._calls = folder / "rules.d", folder / "control", folder / "calls"
        self.rules.mkdir()
        self.control.touch()
        self._calls.touch()
        self.commands = folder / "bin"
        self.commands.mkdir()
        self._command("udevadm", "")
        self._command("sudo", 'exec "$@"')

    def _command(self, name: str, body: str) -> None:
        path = self.commands / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self._calls}\n{body}\n')
        path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines()

    def install(self, text: str) -> None:
        udev.install(text, self.rules, self.control)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    fake = Machine(tmp_path)
    monkeypatch.setenv("PATH", f"{fake.commands}:{os.environ['PATH']}")
    return fake


def test_rules_are_installed_and_applied(machine: Machine) -> None:
    for text in (rules_for_boards(), rules_for_boards(), udev.rules({})):
        machine.install(text)
        path = machine.rules / udev.NAME
        assert path.read_text() == text == udev.installed_rules(machine.rules)
        assert path.stat().st_mode & 0o777 == 0o644
    udevadm = [call for call in machine.calls if call.startswith("udevadm")]
    assert udevadm[0] == "udevadm control --reload"
    assert udevadm[1].startswith("udevadm trigger --action=change --subsystem-match=usb ")
    assert udevadm == udevadm[:2] * 3


def test_sudo_runs_every_step_without_root(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    machine.install(rules_for_boards())
    programs = [call.split()[1] for call in machine.calls if call.startswith("sudo")]
    assert programs == ["install", "udevadm", "udevadm"]
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ProvisionError, match="no sudo") as caught:
        machine.install(rules_for_boards())
    assert "install -m 644 60-utvm.rules" in caught.value.hint


def test_failed_step_has_a_hint(machine: Machine) -> None:
    (machine.commands / "udevadm").write_text("#!/bin/sh\necho no such daemon >&2\nexit 1\n")
    with pytest.raises(ProvisionError, match="no such daemon") as caught:
        machine.install(rules_for_boards())
    assert "udevadm control --reload" in caught.value.hint


@pytest.mark.parametrize("other", ["file", "link"])
def test_foreign_file_is_left_alone(machine: Machine, other: str) -> None:
    path = machine.rules / udev.NAME
    if other == "file":
        path.write_text("# mine\n")
    else:
        # An administrator disables rules this way.
        path.symlink_to("/dev/null")
    with pytest.raises(ConfigError, match="was not written by utvm"):
        machine.install(rules_for_boards())
    assert path.read_text() == ("# mine\n" if other == "file" else "")
    assert udev.installed_rules(machine.rules) == ""
    assert machine.calls == []


def test_container_without_udev_is_an_error(machine: Machine) -> None:
    machine.control.unlink()
    with pytest.raises(ProvisionError, match="udev does not run here") as caught:
        machine.install(rules_for_boards())
    assert "--output" in caught.value.hint
    assert list(machine.rules.iterdir()) == []
