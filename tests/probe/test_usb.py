"""Finding probes. The bus is a stand-in at pyusb's edge: no probe can be counted on where tests run."""

from pathlib import Path
from typing import Any

import pytest
import usb.core
import usb.util

from tests.probe.fake_usb import FakeUsbDevice
from utvm.probe import usb as usb_module
from utvm.probe.usb import ProbeId, detect

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
        FakeUsbDevice(port_numbers=(4, 2), strings={2: "STM32 STLink", 3: "0667FF"}),
        FakeUsbDevice(port_numbers=(4, 1), strings={2: "STM32 STLink", 3: "066BFF"}),
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
    FakeUsbBus(monkeypatch, [FakeUsbDevice(strings={2: error, 3: error})], tmp_path)
    (probe,) = detect([ST_LINK]).probes
    assert (probe.serial, probe.usb_path, probe.description) == ("", "1-1", "0483:374b")
    assert "udev" in probe.problem


def test_a_probe_without_serial_number_is_no_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    FakeUsbBus(monkeypatch, [FakeUsbDevice(iSerialNumber=0)], tmp_path)
    (probe,) = detect([ST_LINK]).probes
    assert (probe.serial, probe.problem) == ("", "")


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
