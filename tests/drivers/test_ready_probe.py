# SPDX-License-Identifier: Apache-2.0
"""A probe on USB is queried before OpenOCD starts. Only the bus is a fake."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.probe import fake_usb
from tests.probe.fake_libusb import Bus, Port
from tests.probe.virtual_rig import assemble
from tests.virtual.fake_board import FakeBoard
from tests.virtual.usb.hung import HangingStLink
from utvm import boards
from utvm.boards import Board
from utvm.drivers import attach
from utvm.errors import BoardError, ProbeError
from utvm.probe.usb import libusb
from utvm.probe.virtual import start_virtual
from utvm.session.application import read_image
from utvm.virtual.console import Backlog
from utvm.virtual.usb.device import UsbDevice
from utvm.virtual.usb.probes import StLinkProbe

# A real probe is locked for the whole machine: parallel tests and other checkouts have another serial number.
SERIAL = f"066B{os.getpid():08X}"
FAILS_ONCE = "if {{![file exists {once}]}} {{ file mkdir {once}; shutdown error }}\n"

Plug = Callable[[UsbDevice], None]


@pytest.fixture
def plug(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Plug:
    """Plug a probe in, for Linux's list of devices and for libusb."""
    fake_usb.use(tmp_path / "bus", monkeypatch.setattr)
    fake_usb.plug_in(tmp_path / "bus", "2.1", SERIAL)

    def put(device: UsbDevice) -> None:
        bus = Bus(Port(device, address=5, ports=(2, 1)))
        monkeypatch.setattr(libusb, "_backend", lambda: bus)

    return put


@pytest.fixture
def board_behind_probe(board: Board, tmp_path: Path) -> Iterator[Callable[[str], Board]]:
    """Return a function that creates the board that OpenOCD reaches through this probe: a model, over TCP."""
    with start_virtual(board, tmp_path / "chip") as chip:
        assert chip.health_match
        select = f"st-link backend tcp {chip.health_match['stlink']}"

        def variant(prefix: str) -> Board:
            folder = tmp_path / "stm32f746"
            folder.mkdir()
            for file in board.directory.iterdir():
                (folder / file.name).write_bytes(file.read_bytes())
            content = yaml.safe_load((folder / "board.yaml").read_text())
            content["physical"]["select_serial"] = select
            (folder / "board.yaml").write_text(yaml.safe_dump(content))
            script = folder / "openocd.cfg"
            script.write_text(prefix + script.read_text())
            return boards.load(str(folder))

        yield variant


def test_unpowered_board_is_refused_before_openocd_starts(board: Board, plug: Plug, tmp_path: Path) -> None:
    plug(StLinkProbe(FakeBoard(0.2), serial=SERIAL, backlog=Backlog(), type_in=lambda data: None))
    with (
        pytest.raises(BoardError, match=rf"no power: the st-link {SERIAL} at USB 1-2.1 measures 0.20 V") as caught,
        attach(board, "physical", log_directory=tmp_path / "logs"),
    ):
        pass
    assert (caught.value.exit_code, "supply" in str(caught.value)) == (3, True)
    assert not (tmp_path / "logs" / "openocd.log").exists()


def test_hanging_probe_is_reset_and_reported(
    plug: Plug, board_behind_probe: Callable[[str], Board], tmp_path: Path
) -> None:
    hanging = HangingStLink(SERIAL)
    hanging.hung = True
    plug(hanging)
    with attach(board_behind_probe(""), "physical", log_directory=tmp_path / "logs") as connection:
        assert "st-link at USB 1-2.1, which did not answer and was reset" in connection.describe()
    assert not hanging.hung


def test_hanging_probe_is_reset_once_and_openocd_restarted(
    plug: Plug, board_behind_probe: Callable[[str], Board], tmp_path: Path
) -> None:
    hanging = HangingStLink(SERIAL)
    hanging.packets_left = 3  # the packets of the query before OpenOCD
    plug(hanging)
    once = tmp_path / "once"
    board = board_behind_probe(FAILS_ONCE.format(once=once))
    with attach(board, "physical", log_directory=tmp_path / "logs") as connection:
        assert "was reset" in connection.describe()


def test_openocd_error_with_a_working_probe_is_raised(
    plug: Plug, board_behind_probe: Callable[[str], Board], tmp_path: Path
) -> None:
    plug(HangingStLink(SERIAL))
    with (
        pytest.raises(ProbeError, match="OpenOCD"),
        attach(
            board_behind_probe(FAILS_ONCE.format(once=tmp_path / "once")), "physical", log_directory=tmp_path / "logs"
        ),
    ):
        pass


# Disables debugging in Stop mode (RM0385, 40.16: DBGMCU_CR), and enters it (ARM DDI 0403E, B3.2.7: SLEEPDEEP).
STOPS = """
        .word   0x20001000
        .word   start + 1
        .rept 14
        .word   start + 1
        .endr
        .thumb_func
        .global start
start:  ldr     r1, =0xE0042004
        movs    r0, #0
        str     r0, [r1]
        ldr     r1, =0xE000ED10
        movs    r0, #4
        str     r0, [r1]
loop:   wfi
        b       loop
        .ltorg
"""


@pytest.mark.slow
def test_chip_in_stop_mode_is_reached_under_reset(
    plug: Plug, board_behind_probe: Callable[[str], Board], tmp_path: Path
) -> None:
    plug(HangingStLink(SERIAL))
    board = board_behind_probe("")
    image = read_image(board, assemble(STOPS, tmp_path).elf)
    messages: list[str] = []
    with attach(board, "physical", log_directory=tmp_path / "first") as connection:
        connection.program(image)
        with pytest.raises(ProbeError):  # It disables the debugger's clock.
            connection.reset(halt=False)
    with attach(board, "physical", log_directory=tmp_path / "second", say=messages.append) as connection:
        assert connection.gdb.read_register("pc") == image.symbols["start"]
        assert connection.first_difference(image) is None
    assert messages == ["the chip does not answer; trying again under reset"]
