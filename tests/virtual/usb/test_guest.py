# SPDX-License-Identifier: Apache-2.0
"""The whole way: a virtual machine's kernel enumerates the probes, and the OpenOCD in it programs the boards."""

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
from utvm.base.process.service import Service
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

# Sends back what it receives on USART3, plus one. In RAM it counts all the while, and behind that its own starts.
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


class Bench(NamedTuple):
    """Boards on one guest's USB: two probes of one kind, one of the other, a V3, a V2. Two more probes have none.

    Attributes:
        boards: the processes of the boards, by the serial numbers of their probes.
        hanging: the probe HUNG-4. DARK-5 is an ST-Link at a board without power.
    """

    guest: Guest
    boards: dict[str, Service]
    hanging: HangingStLink
    doubler: Firmware
    directory: Path

    def from_outside(self, serial: str, command: str) -> str:
        """Have an OpenOCD on this side look at a board through its ST-Link on TCP, and leave it running."""
        match = self.boards[serial].health_match
        assert match
        setup = "gdb_port disabled; tcl_port disabled; telnet_port disabled"
        config = self.directory / "outside.cfg"
        config.write_text(CONFIGS["st-link"] + f"st-link backend tcp {match['stlink']}\n" + TARGET)
        words = ["openocd", "-c", setup, "-f", config, "-c", f"init; {command}; shutdown"]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
        return done.stderr

    def flash(self, serial: str, size: int) -> bytes:
        """Look into a board's flash."""
        dump = self.directory / "dump"
        self.from_outside(serial, f"dump_image {dump} {FLASH:#x} {size}")
        return dump.read_bytes()

    def console(self, serial: str) -> Report:
        """Hear from outside what a board's firmware reports."""
        match = self.boards[serial].health_match
        assert match
        reader = ReportReader()
        with socket.create_connection(("127.0.0.1", int(match["console"])), timeout=30) as line:
            while True:
                part = line.recv(4096)
                assert part
                for report in reader.feed(part):
                    return report


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
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
        running = {}
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
            running[serial] = stack.enter_context(board)
        hanging = HangingStLink("HUNG-4")
        dark = StLinkProbe(FakeBoard(volts=0.2), serial="DARK-5", backlog=Backlog(), type_in=lambda data: None)
        for serial, device in (("HUNG-4", hanging), ("DARK-5", dark)):
            stack.enter_context(_served(device, directory / serial))
        serials = [*running, "HUNG-4", "DARK-5"]
        guest = Guest(directory, kernel, initramfs(files, extra), [directory / serial for serial in serials])
        stack.enter_context(guest)
        guest.start_answering(f"{python} ask_probes.py")
        for serial in serials:
            guest.wait_for(f"grep -qs {serial} /sys/bus/usb/devices/*/serial")
        yield Bench(guest, running, hanging, doubler, directory)


@contextmanager
def _served(device: UsbDevice, path: Path) -> Iterator[None]:
    """Have a probe of this process at the end of a socket."""
    server = UsbServer(device, f"unix:{path}")
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield
    finally:
        server.close()
        thread.join()


def test_the_kernel_takes_them_for_what_they_are(bench: Bench) -> None:
    show = 'cd /sys/bus/usb/devices; for d in */serial; do d=${d%/*}; echo "$(cat $d/idVendor):$(cat $d/idProduct)'
    found = bench.guest.run(show + ' $(cat $d/serial) $(cat $d/speed) $(cat $d/manufacturer)"; done; cd /root')
    assert {
        "0483:374b LEFT-1 12 utvm virtual board",
        "0483:374b RIGHT-2 12 utvm virtual board",
        "0d28:0204 DAP-3 480 utvm virtual board",
        "0483:374e NEW-6 12 utvm virtual board",
        "0483:3748 OLD-7 12 utvm virtual board",
    } <= {line.strip() for line in found.split("\n")}
    assert bench.guest.run("ls /dev/ttyACM*").split() == [f"/dev/ttyACM{number}" for number in range(5)]
    assert not re.search(r"usb.*(error|fail|invalid|unable|warn|no interface)", bench.guest.run("dmesg"), re.IGNORECASE)


def test_linux_and_libusb_say_the_same_of_what_is_plugged_in(bench: Bench) -> None:
    (by_linux, numbers), (by_libusb, same_numbers) = bench.guest.ask("both")
    assert by_libusb == by_linux
    assert same_numbers == numbers == [probe["address"] for probe in by_linux]
    assert {probe["serial_number"] for probe in by_linux} == {*bench.boards, "HUNG-4", "DARK-5"}
    assert {(probe["virtual"], probe["problem"]) for probe in by_linux} == {(True, "")}


def test_user_without_access_sees_places_and_remedy(bench: Bench) -> None:
    found = bench.guest.ask("as_nobody")
    assert len(found) == 7
    for probe in found:
        assert probe["serial_number"] == "" and re.fullmatch(r"1-\d", probe["usb_path"]) and "udev" in probe["problem"]


def test_without_sys_probes_are_found_by_libusb(bench: Bench) -> None:
    usual = bench.guest.ask("detect")
    bench.guest.run("umount /sys")
    bench.guest.ask("afresh")
    try:
        found = bench.guest.ask("detect")
        vitals = bench.guest.ask("examine LEFT-1")
    finally:
        bench.guest.run("mount -t sysfs sysfs /sys")
        bench.guest.ask("afresh")
    # Linux says to nobody then which ports they are plugged into.
    expected = [probe | {"usb_path": f"{probe['bus']}:{probe['address']}"} for probe in usual["probes"]]
    assert found == {"probes": expected, "problem": ""}
    assert vitals == V2_1


def test_a_probe_tells_its_firmware_and_its_board_s_voltage(bench: Bench) -> None:
    assert bench.guest.ask("examine LEFT-1") == V2_1
    assert bench.guest.ask("examine DAP-3") == {"firmware": "CMSIS-DAP 2.1.0", "volts": None, "left_out": ""}
    assert bench.guest.ask("examine NEW-6") == {**V2_1, "firmware": "V3J13M4"}
    assert bench.guest.ask("examine OLD-7") == {**V2_1, "firmware": "V2J40S7"}
    dark = bench.guest.ask("examine DARK-5")
    assert dark == {"firmware": "V2J40M27", "volts": pytest.approx(0.2, abs=0.01), "left_out": ""}


def test_unpowered_board_is_named_before_openocd_starts(bench: Bench) -> None:
    kind, message, code = bench.guest.ask("make_ready DARK-5")
    assert (kind, code) == ("BoardError", 3)
    assert re.search(r"the board has no power: the virtual st-link DARK-5 at USB 1-\d measures 0.20 V", message)


def test_working_openocd_is_left_alone(bench: Bench) -> None:
    bench.guest.run("rm -f log code stop")
    work = f"init; echo working; while {{![file exists stop]}} {{read_memory {SRAM:#x} 32 64}}; echo {{all read}}"
    words = f"openocd -f st-link.cfg -c 'adapter serial LEFT-1' -c '{work}' -c shutdown"
    bench.guest.run(f"({words} > log 2>&1; echo $? > code) & true")
    bench.guest.wait_for("grep -qs working log")
    busy = bench.guest.ask("examine LEFT-1")
    assert busy["left_out"].startswith("another program uses the virtual st-link LEFT-1")
    assert bench.guest.ask("make_ready LEFT-1")["vitals"] == busy
    bench.guest.run("touch stop")
    bench.guest.wait_for("test -s code")
    assert bench.guest.run("cat code") == "0\n", bench.guest.run("cat log")
    assert bench.guest.ask("make_ready LEFT-1")["vitals"] == V2_1
    # The program that asked runs on, and has let go of it.
    assert "all read" in _openocd(bench.guest, "st-link", "LEFT-1", "init; echo {all read}")


def test_a_probe_that_hangs_is_reset_once_and_answers(bench: Bench) -> None:
    bench.hanging.hung = True
    silent = bench.guest.ask("examine HUNG-4")
    assert (silent["volts"], bench.hanging.hung) == (None, True)
    assert "HUNG-4 at USB" in silent["left_out"] and "does not answer" in silent["left_out"]
    awake = bench.guest.ask("make_ready HUNG-4")
    assert (awake["was_reset"], awake["vitals"]) == (True, V2_1)
    assert bench.guest.ask("make_ready HUNG-4")["was_reset"] is False


def test_a_probe_that_a_reset_does_not_wake_is_trouble(bench: Bench) -> None:
    bench.hanging.hung = bench.hanging.for_good = True
    try:
        kind, message, code = bench.guest.ask("make_ready HUNG-4")
    finally:
        bench.hanging.hung = bench.hanging.for_good = False
    assert (kind, code) == ("ProbeError", 3)
    assert "does not answer" in message and "not even after a reset on USB" in message and "replug" in message


def test_of_two_alike_the_one_that_was_named_is_programmed(bench: Bench) -> None:
    said = _openocd(bench.guest, "st-link", "RIGHT-2", "program doubler.elf verify reset")
    assert "** Verified OK **" in said
    address, flash = bench.doubler.segments[0]
    assert address == FLASH
    assert bench.flash("RIGHT-2", len(flash)) == flash
    assert bench.flash("LEFT-1", 64) == b"\xff" * 64
    result = result_of(bench.console("RIGHT-2"), bench.doubler, "instructions")
    assert result.outputs[0].tolist() == (2 * X).tolist()


@pytest.mark.parametrize(
    ("kind", "serial", "said"),
    by_day(
        [
            ("cmsis-dap", "DAP-3", "CMSIS-DAP: "),
            ("st-link", "NEW-6", "STLINK V3J13M4"),
            ("st-link", "OLD-7", "STLINK V2J40S7"),
        ],
        ("st-link", "NEW-6", "STLINK V3J13M4"),
    ),
)
def test_others_program_too(bench: Bench, kind: str, serial: str, said: str) -> None:
    output = _openocd(bench.guest, kind, serial, "program doubler.elf verify reset")
    assert "** Verified OK **" in output and said in output
    result = result_of(bench.console(serial), bench.doubler, "instructions")
    assert result.outputs[0].tolist() == (2 * X).tolist()


def test_the_virtual_com_port_is_the_board_s_console(bench: Bench) -> None:
    _openocd(bench.guest, "st-link", "LEFT-1", "program echo.elf verify reset")
    port = _port_of(bench.guest, "LEFT-1")
    bench.guest.run(f"stty -F {port} raw -echo")
    # "HAL" goes in, and each letter comes back as the next one.
    bench.guest.run(f"(timeout 20 head -c 3 {port} > heard) & sleep 0.5; printf HAL > {port}; wait")
    assert bench.guest.run("cat heard") == "IBM"


def test_an_unplug_and_a_replug_leave_the_board_running(bench: Bench) -> None:
    _openocd(bench.guest, "st-link", "LEFT-1", "program echo.elf verify reset")
    board = bench.boards["LEFT-1"]
    number = bench.guest.run(_device_number("LEFT-1"))
    before, starts = _counts(bench.from_outside("LEFT-1", COUNTS))
    board.send_and_wait(signal.SIGUSR2, "plugged in")
    # A device that is plugged in again has another number on its bus.
    bench.guest.wait_for(f'test -n "$({_device_number("LEFT-1")} | grep -v "^{number.strip()}$")"')
    # The OpenOCD in the guest attaches to a board that went on, and did not start again.
    after, starts_after = _counts(_openocd(bench.guest, "st-link", "LEFT-1", f"init; {COUNTS}"))
    assert after > before
    assert starts_after == starts


@pytest.mark.parametrize(
    ("kind", "serial"), [("st-link", "LEFT-1"), pytest.param("cmsis-dap", "DAP-3", marks=pytest.mark.nightly)]
)
def test_unplug_ends_openocd_and_the_next_one_works(bench: Bench, kind: str, serial: str) -> None:
    work = f"init; echo working; while 1 {{read_memory {SRAM:#x} 32 64; sleep 20}}"
    words = f"openocd -f {kind}.cfg -c 'adapter serial {serial}' -c '{work}'"
    bench.guest.run(f"rm -f log code; ({words} > log 2>&1; echo $? > code) & true")
    bench.guest.wait_for("grep -qs working log")
    bench.boards[serial].send_and_wait(signal.SIGUSR2, "plugged in")
    bench.guest.wait_for("test -s code")
    assert bench.guest.run("cat code") != "0\n"
    bench.guest.wait_for(f"grep -qs {serial} /sys/bus/usb/devices/*/serial")
    assert "** Verified OK **" in _openocd(bench.guest, kind, serial, "program doubler.elf verify reset")


def _openocd(guest: Guest, kind: str, serial: str, command: str) -> str:
    return guest.run(f"openocd -f {kind}.cfg -c 'adapter serial {serial}' -c '{command}' -c shutdown 2>&1")


def _counts(said: str) -> tuple[int, int]:
    found = re.search(r"counts=(0x[0-9a-f]+) (0x[0-9a-f]+)", said)
    assert found, said
    return int(found[1], 16), int(found[2], 16)


def _device_number(serial: str) -> str:
    return f"cat $(dirname $(grep -ls {serial} /sys/bus/usb/devices/*/serial) 2>&-)/devnum 2>&-"


def _port_of(guest: Guest, serial: str) -> str:
    found = guest.run(f"ls -d $(dirname $(grep -ls {serial} /sys/bus/usb/devices/*/serial))/*/tty/*").split()
    assert len(found) == 1
    return f"/dev/{Path(found[0]).name}"
