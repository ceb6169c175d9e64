# SPDX-License-Identifier: Apache-2.0
"""The complete path: a virtual machine's kernel enumerates the probes, and its OpenOCD flashes the boards."""

import re
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from hil_tests.programs import handwritten
from tests.portions import by_day
from tests.probe.virtual_rig import FLASH, SRAM, assemble
from tests.virtual.fake_board import FakeBoard
from tests.virtual.usb.guest import Guest, guest_files, initramfs
from tests.virtual.usb.guest_python import python_files
from tests.virtual.usb.hung import HangingStLink
from utvm import boards, firmware
from utvm.base.process import Service
from utvm.firmware import Firmware
from utvm.probe.virtual import UsbKind, UsbProbe, start_virtual
from utvm.session.standalone import Report, ReportReader, result_of
from utvm.virtual.console import Backlog
from utvm.virtual.usb.device import UsbDevice
from utvm.virtual.usb.probes import StLinkProbe
from utvm.virtual.usb.server import UsbServer

pytestmark = pytest.mark.slow

CONFIGS = {
    "st-link": "source [find interface/stlink-dap.cfg]\ntransport select dapdirect_swd\n",
    "cmsis-dap": "source [find interface/cmsis-dap.cfg]\ntransport select swd\n",
}
TARGET = "source [find target/stm32f7x.cfg]\nreset_config srst_only srst_nogate\nadapter srst delay 0\n"

# Echoes USART3's input plus one. Its RAM holds a running counter, and behind it the number of starts.
ECHO = f"""
        .word   0x20001000
        .word   start + 1
        .rept 14
        .word   start + 1
        .endr
        .thumb_func
        .global start
start:  ldr     r1, =0x40004800
        movs    r0, #0xD                @ USART3, its transmitter and its receiver
        str     r0, [r1]
        ldr     r2, ={SRAM:#x}
        ldr     r0, [r2, #4]
        adds    r0, r0, #1
        str     r0, [r2, #4]
        movs    r3, #0
loop:   adds    r3, r3, #1
        str     r3, [r2]
        ldr     r0, [r1, #0x1C]
        lsls    r0, r0, #26             @ RXNE
        bpl     loop
        ldr     r0, [r1, #0x24]
        adds    r0, r0, #1
        str     r0, [r1, #0x28]
        b       loop
        .ltorg
"""

COUNTS = f"echo counts=[read_memory {SRAM:#x} 32 2]"

X = np.array([1, -2, 3, 70000], np.int32)


V2_1 = {"firmware": "V2J40M27", "volts": pytest.approx(3.3, abs=0.01), "left_out": ""}


class Rig(NamedTuple):
    """A guest with boards on its USB: four ST-Links and a CMSIS-DAP, and two ST-Links without boards.

    Attributes:
        boards: processes of the boards, by serial number of their probes.
        hanging: the probe HUNG-4. DARK-5 is an ST-Link on an unpowered board.
    """

    guest: Guest
    boards: dict[str, Service]
    hanging: HangingStLink
    doubler: Firmware
    directory: Path

    def run_openocd(self, serial: str, command: str) -> str:
        """Run an OpenOCD of the host on a board through its ST-Link on TCP; the board keeps running."""
        match = self.boards[serial].health_match
        assert match
        setup = "gdb_port disabled; tcl_port disabled; telnet_port disabled"
        config = self.directory / "outside.cfg"
        config.write_text(CONFIGS["st-link"] + f"st-link backend tcp {match['stlink']}\n" + TARGET)
        command_line = ["openocd", "-c", setup, "-f", config, "-c", f"init; {command}; shutdown"]
        completed = subprocess.run(command_line, capture_output=True, text=True, check=True, timeout=60)
        return completed.stderr

    def flash(self, serial: str, size: int) -> bytes:
        """Read a board's flash."""
        dump = self.directory / "dump"
        self.run_openocd(serial, f"dump_image {dump} {FLASH:#x} {size}")
        return dump.read_bytes()

    def console(self, serial: str) -> Report:
        """Read a report of a board's firmware from its console, on the host."""
        match = self.boards[serial].health_match
        assert match
        reader = ReportReader()
        with socket.create_connection(("127.0.0.1", int(match["console"])), timeout=30) as line:
            while True:
                chunk = line.recv(4096)
                assert chunk
                for report in reader.feed(chunk):
                    return report


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    if not shutil.which("qemu-system-x86_64"):
        pytest.skip("qemu-system-x86_64 is not installed")
    directory = tmp_path_factory.mktemp("guest")
    kernel, files = guest_files(directory / "packages")
    library = handwritten("doubler", "  for (int i = 0; i < 4; i++) { y[i] = 2 * x[i]; }\n  return 0;")
    doubler = firmware.build(boards.load("stm32f746"), [library], "standing_alone", (X,))
    modules, python = python_files("utvm.probe.vitals")
    extra = {
        **modules,
        "root/ask_probes.py": (Path(__file__).parent / "ask_probes.py").read_bytes(),
        "root/doubler.elf": doubler.elf.read_bytes(),
        "root/echo.elf": assemble(ECHO, directory).elf.read_bytes(),
        **{f"root/{kind}.cfg": (text + TARGET).encode() for kind, text in CONFIGS.items()},
    }
    with ExitStack() as stack:
        board_processes = {}
        kinds: dict[str, tuple[UsbKind, int | None]] = {
            "LEFT-1": ("st-link", None),
            "RIGHT-2": ("st-link", None),
            "DAP-3": ("cmsis-dap", None),
            "NEW-6": ("st-link", 0x374E),
            "OLD-7": ("st-link", 0x3748),
        }
        for serial, (kind, product) in kinds.items():
            usb = UsbProbe(kind, f"unix:{directory}/{serial}", product=product)
            board = start_virtual(boards.load("stm32f746"), directory / f"{serial}-logs", serial=serial, usb=usb)
            board_processes[serial] = stack.enter_context(board)
        hanging = HangingStLink("HUNG-4")
        dark = StLinkProbe(FakeBoard(volts=0.2), serial="DARK-5", backlog=Backlog(), type_in=lambda data: None)
        for serial, device in (("HUNG-4", hanging), ("DARK-5", dark)):
            stack.enter_context(_serve(device, directory / serial))
        serials = [*board_processes, "HUNG-4", "DARK-5"]
        guest = Guest(directory, kernel, initramfs(files, extra), [directory / serial for serial in serials])
        stack.enter_context(guest)
        guest.start_program(f"{python} ask_probes.py")
        for serial in serials:
            guest.wait_for(f"grep -qs {serial} /sys/bus/usb/devices/*/serial")
        yield Rig(guest, board_processes, hanging, doubler, directory)


@contextmanager
def _serve(device: UsbDevice, path: Path) -> Iterator[None]:
    """Serve a probe of this process on a socket."""
    server = UsbServer(device, f"unix:{path}")
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield
    finally:
        server.close()
        thread.join()


def test_kernel_enumerates_the_probes(rig: Rig) -> None:
    show = 'cd /sys/bus/usb/devices; for d in */serial; do d=${d%/*}; echo "$(cat $d/idVendor):$(cat $d/idProduct)'
    output = rig.guest.run(show + ' $(cat $d/serial) $(cat $d/speed) $(cat $d/manufacturer)"; done; cd /root')
    assert {
        "0483:374b LEFT-1 12 utvm virtual board",
        "0483:374b RIGHT-2 12 utvm virtual board",
        "0d28:0204 DAP-3 480 utvm virtual board",
        "0483:374e NEW-6 12 utvm virtual board",
        "0483:3748 OLD-7 12 utvm virtual board",
    } <= {line.strip() for line in output.split("\n")}
    assert rig.guest.run("ls /dev/ttyACM*").split() == [f"/dev/ttyACM{number}" for number in range(5)]
    assert not re.search(r"usb.*(error|fail|invalid|unable|warn|no interface)", rig.guest.run("dmesg"), re.IGNORECASE)


def test_linux_and_libusb_find_the_same_probes(rig: Rig) -> None:
    (by_linux, addresses), (by_libusb, libusb_addresses) = rig.guest.ask("detect_by_both")
    assert by_libusb == by_linux
    assert libusb_addresses == addresses == [probe["address"] for probe in by_linux]
    assert {probe["serial_number"] for probe in by_linux} == {*rig.boards, "HUNG-4", "DARK-5"}
    assert {(probe["virtual"], probe["problem"]) for probe in by_linux} == {(True, "")}


def test_user_without_access_gets_a_hint(rig: Rig) -> None:
    probes = rig.guest.ask("detect_as_nobody")
    assert len(probes) == 7
    for probe in probes:
        assert probe["serial_number"] == "" and re.fullmatch(r"1-\d", probe["usb_path"]) and "udev" in probe["problem"]


def test_libusb_finds_probes_without_sys(rig: Rig) -> None:
    usual = rig.guest.ask("detect")
    rig.guest.run("umount /sys")
    rig.guest.ask("reload_libusb")
    try:
        detected = rig.guest.ask("detect")
        vitals = rig.guest.ask("examine LEFT-1")
    finally:
        rig.guest.run("mount -t sysfs sysfs /sys")
        rig.guest.ask("reload_libusb")
    # Linux then does not tell the ports of the probes.
    expected = [probe | {"usb_path": f"{probe['bus']}:{probe['address']}"} for probe in usual["probes"]]
    assert detected == {"probes": expected, "problem": ""}
    assert vitals == V2_1


def test_probe_reports_firmware_and_voltage(rig: Rig) -> None:
    assert rig.guest.ask("examine LEFT-1") == V2_1
    assert rig.guest.ask("examine DAP-3") == {"firmware": "CMSIS-DAP 2.1.0", "volts": None, "left_out": ""}
    assert rig.guest.ask("examine NEW-6") == {**V2_1, "firmware": "V3J13M4"}
    assert rig.guest.ask("examine OLD-7") == {**V2_1, "firmware": "V2J40S7"}
    dark = rig.guest.ask("examine DARK-5")
    assert dark == {"firmware": "V2J40M27", "volts": pytest.approx(0.2, abs=0.01), "left_out": ""}


def test_unpowered_board_is_named_before_openocd_starts(rig: Rig) -> None:
    kind, message, code = rig.guest.ask("make_ready DARK-5")
    assert (kind, code) == ("BoardError", 3)
    assert re.search(r"the board has no power: the virtual st-link DARK-5 at USB 1-\d measures 0.20 V", message)


def test_running_openocd_is_not_disturbed(rig: Rig) -> None:
    rig.guest.run("rm -f log code stop")
    work = f"init; echo working; while {{![file exists stop]}} {{read_memory {SRAM:#x} 32 64}}; echo {{all read}}"
    command_line = f"openocd -f st-link.cfg -c 'adapter serial LEFT-1' -c '{work}' -c shutdown"
    rig.guest.run(f"({command_line} > log 2>&1; echo $? > code) & true")
    rig.guest.wait_for("grep -qs working log")
    busy = rig.guest.ask("examine LEFT-1")
    assert busy["left_out"].startswith("another program uses the virtual st-link LEFT-1")
    assert rig.guest.ask("make_ready LEFT-1")["vitals"] == busy
    rig.guest.run("touch stop")
    rig.guest.wait_for("test -s code")
    assert rig.guest.run("cat code") == "0\n", rig.guest.run("cat log")
    assert rig.guest.ask("make_ready LEFT-1")["vitals"] == V2_1
    # The program of the queries still runs and has released the probe.
    assert "all read" in _openocd(rig.guest, "st-link", "LEFT-1", "init; echo {all read}")


def test_hanging_probe_is_reset_once(rig: Rig) -> None:
    rig.hanging.hung = True
    silent = rig.guest.ask("examine HUNG-4")
    assert (silent["volts"], rig.hanging.hung) == (None, True)
    assert "HUNG-4 at USB" in silent["left_out"] and "does not answer" in silent["left_out"]
    awake = rig.guest.ask("make_ready HUNG-4")
    assert (awake["was_reset"], awake["vitals"]) == (True, V2_1)
    assert rig.guest.ask("make_ready HUNG-4")["was_reset"] is False


def test_probe_that_hangs_after_a_reset_is_an_error(rig: Rig) -> None:
    rig.hanging.hung = rig.hanging.for_good = True
    try:
        kind, message, code = rig.guest.ask("make_ready HUNG-4")
    finally:
        rig.hanging.hung = rig.hanging.for_good = False
    assert (kind, code) == ("ProbeError", 3)
    assert "does not answer" in message and "not even after a reset on USB" in message and "replug" in message


def test_selected_probe_of_two_is_used(rig: Rig) -> None:
    output = _openocd(rig.guest, "st-link", "RIGHT-2", "program doubler.elf verify reset")
    assert "** Verified OK **" in output
    address, flash = rig.doubler.segments[0]
    assert address == FLASH
    assert rig.flash("RIGHT-2", len(flash)) == flash
    assert rig.flash("LEFT-1", 64) == b"\xff" * 64
    result = result_of(rig.console("RIGHT-2"), rig.doubler, "instructions")
    assert result.outputs[0].tolist() == (2 * X).tolist()


@pytest.mark.parametrize(
    ("kind", "serial", "message"),
    by_day(
        [
            ("cmsis-dap", "DAP-3", "CMSIS-DAP: "),
            ("st-link", "NEW-6", "STLINK V3J13M4"),
            ("st-link", "OLD-7", "STLINK V2J40S7"),
        ],
        ("st-link", "NEW-6", "STLINK V3J13M4"),
    ),
)
def test_other_probes_flash_their_boards(rig: Rig, kind: str, serial: str, message: str) -> None:
    output = _openocd(rig.guest, kind, serial, "program doubler.elf verify reset")
    assert "** Verified OK **" in output and message in output
    result = result_of(rig.console(serial), rig.doubler, "instructions")
    assert result.outputs[0].tolist() == (2 * X).tolist()


def test_com_port_is_the_boards_console(rig: Rig) -> None:
    _openocd(rig.guest, "st-link", "LEFT-1", "program echo.elf verify reset")
    port = _port_of(rig.guest, "LEFT-1")
    rig.guest.run(f"stty -F {port} raw -echo")
    # The letters of "HAL" return as their successors.
    rig.guest.run(f"(timeout 20 head -c 3 {port} > heard) & sleep 0.5; printf HAL > {port}; wait")
    assert rig.guest.run("cat heard") == "IBM"


def test_replug_leaves_the_board_running(rig: Rig) -> None:
    _openocd(rig.guest, "st-link", "LEFT-1", "program echo.elf verify reset")
    board = rig.boards["LEFT-1"]
    number = rig.guest.run(_device_number("LEFT-1"))
    before, starts = _counts(rig.run_openocd("LEFT-1", COUNTS))
    board.send_and_wait(signal.SIGUSR2, "plugged in")
    # A replugged device has another number on its bus.
    rig.guest.wait_for(f'test -n "$({_device_number("LEFT-1")} | grep -v "^{number.strip()}$")"')
    # The guest's OpenOCD attaches to a board that kept running and did not restart.
    after, starts_after = _counts(_openocd(rig.guest, "st-link", "LEFT-1", f"init; {COUNTS}"))
    assert after > before
    assert starts_after == starts


@pytest.mark.parametrize(
    ("kind", "serial"), [("st-link", "LEFT-1"), pytest.param("cmsis-dap", "DAP-3", marks=pytest.mark.nightly)]
)
def test_unplug_ends_openocd_and_the_next_one_works(rig: Rig, kind: str, serial: str) -> None:
    work = f"init; echo working; while 1 {{read_memory {SRAM:#x} 32 64; sleep 20}}"
    command_line = f"openocd -f {kind}.cfg -c 'adapter serial {serial}' -c '{work}'"
    rig.guest.run(f"rm -f log code; ({command_line} > log 2>&1; echo $? > code) & true")
    rig.guest.wait_for("grep -qs working log")
    rig.boards[serial].send_and_wait(signal.SIGUSR2, "plugged in")
    rig.guest.wait_for("test -s code")
    assert rig.guest.run("cat code") != "0\n"
    rig.guest.wait_for(f"grep -qs {serial} /sys/bus/usb/devices/*/serial")
    assert "** Verified OK **" in _openocd(rig.guest, kind, serial, "program doubler.elf verify reset")


def _openocd(guest: Guest, kind: str, serial: str, command: str) -> str:
    return guest.run(f"openocd -f {kind}.cfg -c 'adapter serial {serial}' -c '{command}' -c shutdown 2>&1")


def _counts(output: str) -> tuple[int, int]:
    match = re.search(r"counts=(0x[0-9a-f]+) (0x[0-9a-f]+)", output)
    assert match, output
    return int(match[1], 16), int(match[2], 16)


def _device_number(serial: str) -> str:
    return f"cat $(dirname $(grep -ls {serial} /sys/bus/usb/devices/*/serial) 2>&-)/devnum 2>&-"


def _port_of(guest: Guest, serial: str) -> str:
    devices = guest.run(f"ls -d $(dirname $(grep -ls {serial} /sys/bus/usb/devices/*/serial))/*/tty/*").split()
    assert len(devices) == 1
    return f"/dev/{Path(devices[0]).name}"
