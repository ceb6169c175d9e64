# SPDX-License-Identifier: Apache-2.0
"""Firmware version of a probe and supply voltage of its board. The bus is a fake, the probes are virtual."""

import struct
from collections.abc import Callable

import pytest

from tests.probe.fake_libusb import Bus, Port
from tests.virtual.fake_board import FakeBoard
from tests.virtual.usb.hung import HangingStLink
from utvm.errors import BoardError, ProbeError
from utvm.probe.usb import Probe, ProbeId, detect, libusb, sysfs
from utvm.probe.vitals import Vitals, examine, make_ready
from utvm.virtual.console import Backlog
from utvm.virtual.usb.device import Cable, UsbDevice
from utvm.virtual.usb.probes import CmsisDapProbe, StLinkProbe

KNOWN = [
    ProbeId("st-link", 0x0483, 0x374B),
    ProbeId("st-link", 0x0483, 0x3748),
    ProbeId("st-link", 0x0483, 0x374E),
    ProbeId("cmsis-dap", 0x0D28, 0x0204),
]

Plug = Callable[[Port], Port]


@pytest.fixture
def plug(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> Plug:
    bus = Bus()
    monkeypatch.setattr(sysfs, "DEVICES", tmp_path / "absent")  # type: ignore[operator]
    monkeypatch.setattr(sysfs, "NODES", tmp_path)
    monkeypatch.setattr(libusb, "_backend", lambda: bus)

    def put(port: Port) -> Port:
        bus.ports.append(port)
        return port

    return put


def st_link(volts: float = 3.3) -> StLinkProbe:
    return StLinkProbe(FakeBoard(volts), serial="066BFF", backlog=Backlog(), type_in=lambda data: None)


class ScriptedProbe(StLinkProbe):
    """An ST-Link of another generation: a USB product, and its replies to known commands."""

    def __init__(self, product: int, replies: dict[int, bytes]) -> None:
        super().__init__(FakeBoard(), serial="066BFF", backlog=Backlog(), type_in=lambda data: None)
        object.__setattr__(self.descriptors, "product", product)
        self.replies = replies

    def take(self, cable: Cable, _endpoint: int, data: bytes) -> None:
        cable.send(0x81, self.replies[data[0]])


def only() -> Probe:
    (probe,) = detect(KNOWN).probes
    return probe


@pytest.mark.parametrize("device, serial, kind", [(st_link(), "066BFF", "st-link")])
def test_probes_of_libusb_equal_those_of_linux(plug: Plug, device: UsbDevice, serial: str, kind: str) -> None:
    plug(Port(device))
    assert only() == Probe(kind, 0x0483, 0x374B, serial, "1-2.4", 1, 5, "Virtual ST-Link", virtual=True, problem="")


def test_unplugged_probe_on_libusb_is_noticed(plug: Plug) -> None:
    port = plug(Port(st_link()))
    probe = only()
    probe.check()
    port.address = 6
    with pytest.raises(ProbeError, match="unplugged and plugged in again"):
        probe.check()
    port.ports = (3,)
    with pytest.raises(ProbeError, match="is gone from USB"):
        probe.check()


def test_forbidden_probe_is_listed_with_a_hint(plug: Plug) -> None:
    plug(Port(st_link(), forbidden=True))
    probe = only()
    assert (probe.serial_number, probe.usb_path, probe.description) == ("", "1-2.4", "0483:374b")
    assert "./inv board.install-udev" in probe.problem
    assert examine(probe) == Vitals()


def test_missing_libusb_is_named(plug: Plug, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libusb, "_backend", lambda: None)
    assert "libusb cannot start" in detect(KNOWN).problem


def test_virtual_probes_report_their_version(plug: Plug) -> None:
    port = plug(Port(st_link()))
    assert examine(only()) == Vitals("V2J40M27", pytest.approx(3.3, abs=0.01))
    assert port.claimed == set()
    port.device = CmsisDapProbe(FakeBoard(), serial="066BFF")
    assert examine(only()) == Vitals("CMSIS-DAP 2.1.0")


VERSION, MODE, VOLTAGE, VERSION_EX = 0xF1, 0xF5, 0xF7, 0xFB
USUAL = {MODE: b"\x01\0", VOLTAGE: struct.pack("<II", 1510, 2050)}  # 2 * 2050 * 1.2 / 1510 = 3.258


def _version(generation: int, first: int, second: int) -> dict[int, bytes]:
    return {VERSION: struct.pack(">H", generation << 12 | first << 6 | second) + bytes(4)}


@pytest.mark.parametrize(
    "product, replies, firmware, volts, left_out",
    [
        (0x3748, {**USUAL, **_version(2, 37, 7)}, "V2J37S7", 3.258, ""),
        (0x374B, {**USUAL, **_version(2, 33, 25)}, "V2J33M25", 3.258, ""),
        (
            0x374E,
            {**USUAL, **_version(3, 0, 0), VERSION_EX: bytes([3, 0, 7, 3, 2, 0, 0, 0, 0x83, 4, 0x4E, 0x37])},
            "V3J7M3B2",
            3.258,
            "",
        ),
        (0x3748, {**_version(2, 12, 1)}, "V2J12S1", None, "too old"),
        (0x3748, {**_version(2, 37, 7), MODE: b"\0\0"}, "V2J37S7", None, "waits for new firmware"),
        (0x374B, {**USUAL, **_version(2, 33, 25), VOLTAGE: bytes(8)}, "V2J33M25", 0.0, ""),
    ],
)
def test_generations_of_st_link_are_distinguished(
    plug: Plug, product: int, replies: dict[int, bytes], firmware: str, volts: float | None, left_out: str
) -> None:
    plug(Port(ScriptedProbe(product, replies)))
    vitals = examine(only())
    assert (vitals.firmware, left_out in vitals.left_out) == (firmware, True)
    assert vitals.volts == (None if volts is None else pytest.approx(volts, abs=0.001))


@pytest.mark.parametrize("volts, enough", [(0.0, False), (1.4, False), (1.6, True), (5.0, True)])
def test_board_below_one_and_a_half_volts_has_no_power(plug: Plug, volts: float, enough: bool) -> None:
    plug(Port(st_link(volts)))
    if enough:
        assert make_ready(only()).vitals.is_powered
        return
    with pytest.raises(BoardError, match=f"no power: the virtual st-link 066BFF at USB 1-2.4 measures {volts:.2f} V"):
        make_ready(only())


def test_probe_in_use_is_left_alone(plug: Plug) -> None:
    plug(Port(st_link(0.0), taken=True))
    ready = make_ready(only())
    assert ready.vitals == Vitals(left_out="another program uses the virtual st-link 066BFF at USB 1-2.4")
    assert not ready.was_reset


def test_replugged_probe_with_a_new_number_is_used(plug: Plug) -> None:
    hanging = HangingStLink("066BFF")
    port = plug(Port(hanging, after_reset=9))
    hanging.hung = True
    ready = make_ready(only())
    assert (port.resets, ready.was_reset, ready.probe.address) == (1, True, 9)
    assert ready.vitals.is_powered and not hanging.hung
    ready.probe.check()


def test_probe_is_reset_once_if_allowed(plug: Plug) -> None:
    hanging = HangingStLink("066BFF")
    port = plug(Port(hanging))
    hanging.hung = hanging.for_good = True
    with pytest.raises(ProbeError, match="does not answer"):
        make_ready(only(), may_reset=False)
    assert port.resets == 0
    with pytest.raises(ProbeError, match="not even after a reset on USB"):
        make_ready(only())
    assert port.resets == 1


def test_reply_of_another_length_is_ignored(plug: Plug) -> None:
    """A probe may still hold a reply that its previous host did not read."""
    plug(Port(ScriptedProbe(0x374B, {VERSION: b"\x80\0"})))
    assert "gives an unexpected reply (8000)" in examine(only()).left_out
