# SPDX-License-Identifier: Apache-2.0
"""Text from outside is never executed, causes no traceback, and keeps the usual exit code."""

import shutil
from pathlib import Path

import pytest

from tests.cli.running import inv
from tests.history.reports import report_of
from tests.probe import fake_usb
from tests.probe.fake_libusb import Bus, Port
from tests.quoting import hostile_strings
from tests.virtual.fake_board import FakeBoard
from utvm import boards
from utvm.drivers import attach
from utvm.errors import ConfigError, ProbeError
from utvm.history.changes import last_good
from utvm.history.store import open_history, record
from utvm.probe.usb import Probe, libusb
from utvm.virtual.console import Backlog
from utvm.virtual.usb.device import DeviceDescriptors
from utvm.virtual.usb.probes import StLinkProbe

HOSTILE = ["[exec touch pwned]$(touch pwned)", "} ; exec touch pwned; {", '"; shell touch pwned',
           "log-\udc80.txt", "\x1b[2J\u202e\na"]  # fmt: skip
_ST_LINK = boards.load("stm32f746").directory


@pytest.mark.parametrize("serial", ["[exec touch pwned]", '"$[exec touch pwned]{', "} ; exec touch pwned; {"])
def test_serial_number_and_folder_are_no_commands(serial: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "} ; exec touch pwned; {" / "stm32f746"
    shutil.copytree(_ST_LINK, folder)
    monkeypatch.chdir(tmp_path)
    fake_usb.use(tmp_path / "bus", monkeypatch.setattr)
    fake_usb.plug_in(tmp_path / "bus", "2.1", serial)
    probe = StLinkProbe(FakeBoard(3.3), serial=serial, backlog=Backlog(), type_in=lambda data: None)
    bus = Bus(Port(probe, address=5, ports=(2, 1)))
    monkeypatch.setattr(libusb, "_backend", lambda: bus)
    with (
        pytest.raises(ProbeError, match="OpenOCD"),
        attach(boards.load(str(folder)), "physical", log_directory=tmp_path / "logs"),
    ):
        pass
    log = (tmp_path / "logs" / "openocd.log").read_text()
    assert "open failed" in log and "Can't find" not in log, log
    assert not list(tmp_path.rglob("pwned"))


def test_half_a_surrogate_pair_in_a_usb_string_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    string = DeviceDescriptors._string

    def damaged(self: DeviceDescriptors, index: int) -> bytes | None:
        content = string(self, index)
        return content[:2] + b"\x00\xd8" + content[4:] if content and index else content

    monkeypatch.setattr(DeviceDescriptors, "_string", damaged)
    probe = StLinkProbe(FakeBoard(3.3), serial="066B", backlog=Backlog(), type_in=lambda data: None)
    bus = Bus(Port(probe, address=5, ports=(2, 1)))
    monkeypatch.setattr(libusb, "_backend", lambda: bus)
    (device,) = libusb.devices({(0x0483, 0x374B): "", (0x0483, 0x3748): ""}, Probe)
    assert device.serial_number == "\ufffd66B" and not device.problem


@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_history_accepts_any_names_and_messages(count: int, tmp_path: Path) -> None:
    reports = []
    for number, text in enumerate(hostile_strings(count)):
        report = report_of(1) | {"run_id": f"20261101T010000.{number:03}Z-0000", "trouble": text}
        report["board"] = report["board"] | {"serial": text}
        test = {"id": f"it::{number}{text}", "outcome": "failed", "message": text}
        report["tests"] = [report["tests"][0] | test]
        reports.append(report)
    assert record(tmp_path / "h.sqlite", *reports) == ""
    with open_history(tmp_path / "h.sqlite") as history:
        (stored,) = history.execute("select count(*) from outcome").fetchone()
    assert stored == count


def test_history_with_invalid_utf8_is_damaged(tmp_path: Path) -> None:
    assert record(tmp_path / "h.sqlite", report_of(1)) == ""
    with open_history(tmp_path / "h.sqlite") as history:
        history.execute("update board set serial = cast(x'ff80' as text)")
    with (
        pytest.raises(ConfigError, match="damaged, or not a history") as caught,
        open_history(tmp_path / "h.sqlite") as damaged,
    ):
        last_good(damaged, "it::test_a")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("66", "66 is not a string in YAML: put it in quotes"),
        ("683534322", "put it in quotes"),
        (r'"a\0b"', r"text cannot contain \x00"),
        (r'"a\ud800b"', r"text cannot contain \ud800"),
    ],
)
def test_yaml_without_text_is_refused_with_a_message(value: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "n.yaml").write_text(f"boards:\n  - {{board: stm32f746, kind: physical, serial: {value}}}\n")
    completed = inv("nightly", "--config", tmp_path / "n.yaml")
    assert (completed.returncode, message in completed.stderr, "line 2" in completed.stderr) == (2, True, True), (
        completed.stderr
    )


@pytest.mark.parametrize(
    "command",
    [
        "board.show @",
        pytest.param("hil --board=@", marks=pytest.mark.slow),
        pytest.param("hil --board=stm32f746 --virtual --suite=@", marks=pytest.mark.slow),
        pytest.param("hil --board=stm32f746 --serial=@", marks=pytest.mark.slow),
        pytest.param("hil --board=stm32f746:@", marks=pytest.mark.slow),
        pytest.param("model.run @", marks=pytest.mark.slow),
        pytest.param("model.run digits --board=host --input=@", marks=pytest.mark.slow),
        pytest.param("firmware.flash @ --board=stm32f746", marks=pytest.mark.slow),
        pytest.param("board.gdb --elf=@ --board=stm32f746", marks=pytest.mark.slow),
        pytest.param("nightly --config=@", marks=pytest.mark.slow),
        pytest.param("history.import @", marks=pytest.mark.slow),
        pytest.param("history.trend @", marks=pytest.mark.slow),
        pytest.param("hil --board=host --in=farm --tags=@", marks=pytest.mark.slow),
    ],
)
def test_hostile_command_line_is_refused_with_a_message(command: str, tmp_path: Path) -> None:
    for text in HOSTILE:
        completed = inv(*(word.replace("@", text) for word in command.split()), cwd=tmp_path)
        output = completed.stdout + completed.stderr
        assert completed.returncode in (2, 3) and "Traceback" not in output and "internal error" not in output, output
        assert all(letter.isprintable() for letter in output if letter not in "\n\t"), ascii(output)
        assert not list(tmp_path.rglob("pwned"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("p [x]", marks=pytest.mark.nightly), 'p $HOME {"; touch pwned'])
def test_failed_test_with_any_text_is_reported(name: str, tmp_path: Path) -> None:
    project = tmp_path / name
    (project / "hil").mkdir(parents=True)
    (project / "utvm.yaml").write_text("boards: [{board: stm32f746}]\n")
    (project / "hil" / "test_it.py").write_text(
        "def test_a(board):\n"
        '    print("\\udc80\\x00\\x1b[2J")\n'
        '    assert "log-\\udc80.txt" == "\\ud800\\x00\\x1b[31m \\u202e ]]> | `"\n'
    )
    completed = inv("hil", "--board", "stm32f746", "--virtual", cwd=project)
    assert completed.returncode == 1 and "internal error" not in completed.stdout + completed.stderr, (
        completed.stdout + completed.stderr
    )
    assert "history was not written" not in completed.stdout + completed.stderr
    for kind in ("summary", "annotations", "quality", "metrics"):
        assert inv("history.export", "--format", kind, cwd=project).returncode == 0
    assert "log-\\udc80.txt" in inv("history.export", "--format", "summary", cwd=project).stdout.replace("&#92;", "\\")
    assert not list(tmp_path.rglob("pwned"))
