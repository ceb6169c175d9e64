"""Finding probes. The bus is a stand-in at pyusb's edge: no probe can be counted on where tests run."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import usb.core
import usb.util

from tests.probe.fake_usb import FakeUsbDevice, plug_in, plugged_in
from utvm.errors import ProbeError
from utvm.probe import usb as usb_module
from utvm.probe.usb import ProbeId, detect
from utvm.virtual.usb import MAKER

ST_LINK = ProbeId("st-link", 0x0483, 0x374B)


class FakeUsbBus:
    """Stands in for pyusb: ``usb.core.find`` and ``usb.util.get_string``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, devices: Any, tree: Path) -> None:
        self._devices = devices
        monkeypatch.setattr(usb_module, "_USB_DEVICES", tree)
        monkeypatch.setattr(usb.core, "find", self.find)
        monkeypatch.setattr(usb.util, "get_string", self.get_string)

    def find(self, find_all: bool) -> Any:
        assert find_all
        if isinstance(self._devices, Exception):
            raise self._devices
        return iter(self._devices)

    def get_string(self, device: FakeUsbDevice, index: int) -> str:
        value = device.strings[index]
        if isinstance(value, Exception):
            raise value
        return value


def test_two_boards_with_one_id_are_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    devices = [
        FakeUsbDevice(port_numbers=(4, 2), strings={1: "ST", 2: "STM32 STLink", 3: "0667FF"}),
        FakeUsbDevice(port_numbers=(4, 1), strings={1: "ST", 2: "STM32 STLink", 3: "066BFF"}),
        FakeUsbDevice(idVendor=0x1D6B, idProduct=2),
    ]
    FakeUsbBus(monkeypatch, devices, tmp_path)
    found = detect([ST_LINK])
    assert found.problem == ""
    assert [(p.kind, p.serial, p.usb_path, p.description) for p in found.probes] == [
        ("st-link", "066BFF", "1-4.1", "STM32 STLink"),
        ("st-link", "0667FF", "1-4.2", "STM32 STLink"),
    ]


@pytest.mark.parametrize(
    "error", [usb.core.USBError("Access denied", errno=13), ValueError("The device has no langid")]
)
def test_a_probe_that_may_not_be_opened_is_reported_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    FakeUsbBus(monkeypatch, [FakeUsbDevice(strings={1: error, 2: error, 3: error})], tmp_path)
    (probe,) = detect([ST_LINK]).probes
    assert (probe.serial, probe.usb_path, probe.description) == ("", "1-1", "0483:374b")
    assert "udev" in probe.problem


def test_a_probe_without_serial_number_is_no_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    FakeUsbBus(monkeypatch, [FakeUsbDevice(iSerialNumber=0)], tmp_path)
    (probe,) = detect([ST_LINK]).probes
    assert (probe.serial, probe.problem) == ("", "")


@pytest.mark.parametrize("maker, virtual", [(MAKER, True), ("STMicroelectronics", False), ("", False)])
def test_a_virtual_probe_is_known_by_its_maker_whatever_else_it_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, maker: str, virtual: bool
) -> None:
    device = FakeUsbDevice(strings={1: maker, 2: "STM32 STLink", 3: "066BFF303430"})
    FakeUsbBus(monkeypatch, [device], tmp_path)
    (probe,) = detect([ST_LINK]).probes
    assert (probe.virtual, probe.problem) == (virtual, "")
    assert probe.spoken.startswith("virtual st-link 066BFF303430") == virtual


def test_a_probe_that_does_not_say_who_made_it_has_a_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    device = FakeUsbDevice(strings={1: usb.core.USBError("timed out", errno=110), 2: "ST-Link", 3: "066BFF"})
    FakeUsbBus(monkeypatch, [device], tmp_path)
    (probe,) = detect([ST_LINK]).probes
    assert (probe.serial, probe.virtual) == ("066BFF", False)
    assert "timed out" in probe.problem


def test_a_probe_that_was_unplugged_is_noticed_also_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plug_in(tmp_path, 1, "066BFF", address=5)
    FakeUsbBus(monkeypatch, plugged_in(tmp_path), tmp_path)
    (probe,) = detect([ST_LINK]).probes
    probe.check()
    plug_in(tmp_path, 1, "066BFF", address=6)
    with pytest.raises(ProbeError, match="probe 066BFF at USB 1-1 was unplugged and plugged in again"):
        probe.check()
    shutil.rmtree(tmp_path / "1-1")
    with pytest.raises(ProbeError, match="probe 066BFF at USB 1-1 is gone from USB"):
        probe.check()


def test_a_machine_without_usb_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    FakeUsbBus(monkeypatch, [], tmp_path / "absent")
    assert "no USB" in detect([ST_LINK]).problem


@pytest.mark.parametrize("error", [usb.core.NoBackendError("x"), usb.core.USBError("x", errno=99)])
def test_a_machine_without_libusb_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    FakeUsbBus(monkeypatch, error, tmp_path)
    found = detect([ST_LINK])
    assert found.probes == ()
    assert found.problem


def test_this_machine_can_be_asked() -> None:
    found = detect([ST_LINK])
    assert found.problem or all(probe.vendor == 0x0483 for probe in found.probes)
