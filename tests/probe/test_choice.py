# SPDX-License-Identifier: Apache-2.0
"""Choosing a board: one that is plugged in, or a virtual one, and never one for the other."""

import dataclasses
from collections.abc import Callable

import pytest

from utvm import boards
from utvm.boards import Board
from utvm.errors import ConfigError, ProbeError
from utvm.probe import choice
from utvm.probe.choice import find_probe
from utvm.probe.usb import Detection, Probe

NUCLEO = Probe("st-link", 0x0483, 0x374B, "066BFF303430", "1-2.1", 1, 5, "STM32 STLink", False, "")
ANOTHER = dataclasses.replace(NUCLEO, serial_number="0670FF515056", usb_path="1-2.2", address=6)
VIRTUAL = dataclasses.replace(NUCLEO, serial_number="V-1", usb_path="2-1", bus=2, virtual=True)
DAP = dataclasses.replace(VIRTUAL, kind="cmsis-dap", vendor=0x0D28, product=0x0204, serial_number="V-2", usb_path="2-2")

Plug = Callable[..., None]


@pytest.fixture
def plug(monkeypatch: pytest.MonkeyPatch) -> Plug:
    """Return a function that plugs probes in, on a fake USB bus."""
    return lambda *probes, problem="": monkeypatch.setattr(choice, "detect", lambda known: Detection(probes, problem))


def test_physical_board_is_preferred(board: Board, plug: Plug) -> None:
    plug(NUCLEO)
    assert find_probe(board, "auto", "") == NUCLEO
    assert find_probe(board, "physical", "") == NUCLEO
    assert find_probe(board, "virtual", "") is None


def test_virtual_board_is_used_unless_physical_is_required(board: Board, plug: Plug) -> None:
    plug(problem="no USB stack")
    assert find_probe(board, "auto", "") is None
    with pytest.raises(ProbeError, match="no USB stack"):
        find_probe(board, "physical", "")


def test_identical_probes_are_distinguished_by_serial(board: Board, plug: Plug) -> None:
    plug(NUCLEO, ANOTHER)
    assert find_probe(board, "auto", ANOTHER.serial_number) == ANOTHER
    with pytest.raises(ConfigError, match=f"{NUCLEO.serial_number}, {ANOTHER.serial_number}"):
        find_probe(board, "auto", "")
    with pytest.raises(ProbeError, match=r"no probe 123: plugged in: st-link 066BFF303430 at USB 1-2\.1"):
        find_probe(board, "auto", "123")


def test_part_of_a_serial_number_matches_no_probe(board: Board, plug: Plug) -> None:
    longer = dataclasses.replace(ANOTHER, serial_number=f"{NUCLEO.serial_number}7")
    plug(longer)
    for part in (
        NUCLEO.serial_number,
        longer.serial_number[1:],
        longer.serial_number[:1],
        longer.serial_number.lower(),
    ):
        with pytest.raises(ProbeError, match=f"no probe {part}: plugged in"):
            find_probe(board, "auto", part)
    for order in ((longer, NUCLEO), (NUCLEO, longer)):
        plug(*order)
        assert find_probe(board, "physical", NUCLEO.serial_number) == NUCLEO
        assert find_probe(board, "physical", longer.serial_number) == longer


def test_probe_without_a_readable_serial_is_an_error(board: Board, plug: Plug) -> None:
    plug(dataclasses.replace(NUCLEO, serial_number="", problem="you may not open it: udev rules"))
    with pytest.raises(ProbeError, match="no serial number") as caught:
        find_probe(board, "auto", "")
    assert "udev" in caught.value.hint


def test_physical_serial_of_a_virtual_board_is_refused(board: Board, plug: Plug) -> None:
    plug(NUCLEO)
    with pytest.raises(ConfigError, match="is that of a physical board"):
        find_probe(board, "virtual", NUCLEO.serial_number)


@pytest.mark.parametrize("probe", [VIRTUAL, DAP])
def test_virtual_usb_board_is_used_by_serial_only(board: Board, plug: Plug, probe: Probe) -> None:
    plug(VIRTUAL, DAP)
    assert find_probe(board, "auto", "") is None
    assert find_probe(board, "virtual", "") is None
    assert find_probe(board, "auto", probe.serial_number) == probe
    assert find_probe(board, "virtual", probe.serial_number) == probe


def test_virtual_usb_board_is_not_physical(board: Board, plug: Plug) -> None:
    plug(VIRTUAL)
    with pytest.raises(ConfigError, match="the probe V-1 is VIRTUAL"):
        find_probe(board, "physical", "V-1")
    with pytest.raises(ProbeError, match="only virtual probes are plugged in: virtual st-link V-1 at USB 2-1"):
        find_probe(board, "physical", "")
    plug(VIRTUAL, NUCLEO)
    assert find_probe(board, "physical", "") == NUCLEO


@pytest.mark.parametrize("serial", ["", NUCLEO.serial_number])
def test_virtual_board_with_a_physical_serial_is_refused(board: Board, plug: Plug, serial: str) -> None:
    """OpenOCD finds a probe by its USB ids and serial number: it might drive the virtual one."""
    plug(NUCLEO, dataclasses.replace(VIRTUAL, serial_number=NUCLEO.serial_number))
    for kind in ("auto", "physical"):
        with pytest.raises(ConfigError, match=r"at USB 1-2\.1 and 2-1 have the same serial number"):
            find_probe(board, kind, serial)  # type: ignore[arg-type]


def test_usb_path_chooses_between_equal_serials(board: Board, plug: Plug) -> None:
    twin = dataclasses.replace(ANOTHER, serial_number=NUCLEO.serial_number)
    plug(NUCLEO, twin)
    with pytest.raises(ConfigError, match="have the same serial number") as caught:
        find_probe(board, "physical", NUCLEO.serial_number)
    assert "--serial 1-2.1" in caught.value.hint
    for probe in (NUCLEO, twin):
        selected = find_probe(board, "physical", probe.usb_path)
        assert selected == dataclasses.replace(probe, by_path=True)
        assert selected.selector == probe.usb_path
    # A unique serial number is preferred, as it does not depend on the port.
    plug(NUCLEO, ANOTHER)
    selected = find_probe(board, "physical", ANOTHER.usb_path)
    assert selected and selected.selector == ANOTHER.serial_number
    with pytest.raises(ProbeError, match=r"no probe 1-9"):
        find_probe(board, "physical", "1-9")


@pytest.mark.parametrize("product", [0x3744, 0x3748, 0x374B, 0x374D, 0x374E, 0x374F, 0x3752, 0x3753, 0x3754])
def test_any_st_link_product_is_accepted(board: Board, plug: Plug, product: int) -> None:
    """The products of OpenOCD's interface/stlink.cfg; a Nucleo-H743ZI2 has 374e."""
    probe = dataclasses.replace(NUCLEO, product=product)
    plug(probe)
    assert find_probe(board, "auto", "") == probe
    match = choice.match_of(board, probe)
    assert match and ("console" in match.lacks) == (product in (0x3744, 0x3748))


def test_probe_of_unreadable_maker_is_not_physical(board: Board, plug: Plug) -> None:
    plug(dataclasses.replace(NUCLEO, problem="Linux could not read its manufacturer"))
    with pytest.raises(ProbeError, match=r"the probe 066BFF303430 at USB 1-2\.1 cannot be used"):
        find_probe(board, "physical", "")


def test_physical_probe_of_a_virtual_only_kind_is_ignored(board: Board, plug: Plug) -> None:
    """Many boards have a DAPLink."""
    plug(dataclasses.replace(DAP, virtual=False))
    assert find_probe(board, "auto", "") is None
    with pytest.raises(ProbeError, match="there is no probe V-2"):
        find_probe(board, "auto", "V-2")


def test_virtual_board_without_a_probe_refuses_a_serial(plug: Plug) -> None:
    board = boards.load("pynq-z1")
    plug(VIRTUAL)
    with pytest.raises(ConfigError, match="names a physical board"):
        find_probe(board, "virtual", "V-1")
