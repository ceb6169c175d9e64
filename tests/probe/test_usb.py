# SPDX-License-Identifier: Apache-2.0
"""Finding probes, on a bus that is a folder."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.probe.fake_usb import plug_in, unplug, use
from utvm.errors import ProbeError
from utvm.probe.usb import Probe, ProbeId, detect
from utvm.virtual.usb import MAKER

ST_LINK = ProbeId("st-link", 0x0483, 0x374B)


@pytest.fixture
def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use(tmp_path, monkeypatch.setattr)
    return tmp_path


def _only() -> Probe:
    (probe,) = detect([ST_LINK]).probes
    return probe


def test_two_boards_with_one_id_are_separate(bus: Path) -> None:
    plug_in(bus, "4.2", "0667FF", address=7)
    plug_in(bus, "4.1", "066BFF", address=12)
    plug_in(bus, "4", "", numbers=(0x1D6B, 2))
    detection = detect([ST_LINK])
    assert detection.problem == ""
    assert [(p.kind, p.serial_number, p.usb_path, p.bus, p.address, p.description) for p in detection.probes] == [
        ("st-link", "066BFF", "1-4.1", 1, 12, "STM32 STLink"),
        ("st-link", "0667FF", "1-4.2", 1, 7, "STM32 STLink"),
    ]


def test_forbidden_probe_is_reported_with_a_remedy(bus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(bus, "1", "A", product="")
    # Root may open everything.
    monkeypatch.setattr(os, "access", lambda path, mode: path != bus / "nodes" / "001" / "005")
    assert (_only().serial_number, _only().usb_path, _only().description) == ("A", "1-1", "0483:374b")
    assert "udev" in _only().problem


_FILES = ("manufacturer", "product", "serial", "descriptors", "busnum", "devnum", "idVendor", "idProduct")


def _check_strange_device(bus: Path, contents: dict[str, bytes]) -> None:
    shutil.rmtree(bus / "devices")
    plug_in(bus, "1", "A")
    plug_in(bus, "2", "B")
    for name, data in contents.items():
        (bus / "devices" / "1-1" / name).write_bytes(data)
    probes = {probe.usb_path: probe for probe in detect([ST_LINK]).probes}
    assert (probes["1-2"].serial_number, probes["1-2"].problem) == ("B", "")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(_FILES), st.binary(max_size=20)))
def test_strange_device_does_not_hide_others(bus: Path, contents: dict[str, bytes]) -> None:
    _check_strange_device(bus, contents)


@pytest.mark.nightly
@settings(max_examples=5000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(_FILES), st.binary(max_size=300)))
def test_many_strange_devices_do_not_hide_others(bus: Path, contents: dict[str, bytes]) -> None:
    _check_strange_device(bus, contents)


@pytest.mark.parametrize(
    ("serial", "spelled"),
    [
        # The example in OpenOCD's interface/stlink.cfg, and one with a newline at its end.
        ("\xaa\xbc\x6e\x06\x50\x75\xff\x55\x17\x42\x19\x3f", "AABC6E065075FF551742193F"),
        (" \xbc\x6e\x06\x50\x75\xff\x55\x17\x42\x19\n", "20BC6E065075FF551742190A"),
        ("066CFF495177", "066CFF495177"),
    ],
)
def test_serial_of_an_old_st_link_has_openocds_form(bus: Path, serial: str, spelled: str) -> None:
    plug_in(bus, "2.1", serial, numbers=(0x0483, 0x3748))
    (probe,) = detect([ProbeId("st-link", 0x0483, 0x3748)]).probes
    assert probe.serial_number == spelled


def test_probe_without_a_serial_number_is_no_problem(bus: Path) -> None:
    plug_in(bus, "1", "")
    assert (_only().serial_number, _only().problem) == ("", "")


@pytest.mark.parametrize("maker, virtual", [(MAKER, True), ("STMicroelectronics", False), ("", False)])
def test_virtual_probe_is_known_by_its_maker(bus: Path, maker: str, virtual: bool) -> None:
    plug_in(bus, "1", "066BFF303430", maker=maker)
    assert (_only().virtual, _only().problem) == (virtual, "")
    assert _only().full_name.startswith("virtual st-link 066BFF303430") == virtual


@pytest.mark.parametrize("unread", ["manufacturer", "serial"])
def test_probe_with_unreadable_strings_has_a_problem(bus: Path, unread: str) -> None:
    plug_in(bus, "1", "066BFF", maker=MAKER, unread=unread)
    assert f"could not read its {unread}" in _only().problem


def test_unplug_is_noticed_after_a_replug(bus: Path) -> None:
    plug_in(bus, "1", "066BFF", address=5)
    probe = _only()
    probe.check()
    plug_in(bus, "1", "066BFF", address=6)
    with pytest.raises(ProbeError, match="probe 066BFF at USB 1-1 was unplugged and plugged in again"):
        probe.check()
    assert _only().address == 6
    unplug(bus, "1")
    with pytest.raises(ProbeError, match="probe 066BFF at USB 1-1 is gone from USB"):
        probe.check()
    assert detect([ST_LINK]).probes == ()


@pytest.mark.parametrize("has_list", [True, False])
def test_machine_without_usb_is_reported(bus: Path, has_list: bool) -> None:
    """A container has Linux's list without the nodes: it lists the devices, but cannot open them."""
    (bus / "nodes").rmdir()
    if not has_list:
        (bus / "devices").rmdir()
    detection = detect([ST_LINK])
    assert (detection.probes, detection.problem) == ((), f"this machine has no USB ({bus / 'nodes'} is missing)")


def test_detection_works_on_this_machine() -> None:
    detection = detect([ST_LINK])
    assert detection.problem or all(probe.vendor == 0x0483 for probe in detection.probes)
