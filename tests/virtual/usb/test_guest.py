"""The whole way: a virtual machine's kernel enumerates the probes, and the OpenOCD in it programs the boards."""

import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from hil_tests.programs import handwritten
from tests.probe.virtual_rig import FLASH, SRAM, assemble
from tests.virtual.usb.guest import Guest, guest_files, initramfs
from utvm import boards, firmware
from utvm.firmware import Firmware
from utvm.probe.virtual import UsbProbe, start_virtual
from utvm.process import Service
from utvm.session.reports import Report, ReportReader
from utvm.session.standing_alone import judge

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


class Bench(NamedTuple):
    """Three boards on one guest's USB: two probes of one kind, and one of the other."""

    guest: Guest
    boards: dict[str, Service]
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
    extra = {
        "root/doubler.elf": doubler.elf.read_bytes(),
        "root/echo.elf": assemble(ECHO, directory).elf.read_bytes(),
        **{f"root/{kind}.cfg": (text + TARGET).encode() for kind, text in CONFIGS.items()},
    }
    with ExitStack() as stack:
        running = {}
        left, right, other = UsbProbe("st-link", ""), UsbProbe("st-link", ""), UsbProbe("cmsis-dap", "")
        for serial, probe in (("LEFT-1", left), ("RIGHT-2", right), ("DAP-3", other)):
            usb = UsbProbe(probe.kind, f"unix:{directory}/{serial}")
            board = start_virtual(boards.load("stm32f746"), directory / f"{serial}-logs", serial=serial, usb=usb)
            running[serial] = stack.enter_context(board)
        guest = Guest(directory, kernel, initramfs(files, extra), [directory / serial for serial in running])
        stack.enter_context(guest)
        for serial in running:
            guest.wait_for(f"grep -qs {serial} /sys/bus/usb/devices/*/serial")
        yield Bench(guest, running, doubler, directory)


def test_the_kernel_takes_them_for_what_they_are(bench: Bench) -> None:
    show = 'cd /sys/bus/usb/devices; for d in */serial; do d=${d%/*}; echo "$(cat $d/idVendor):$(cat $d/idProduct)'
    found = bench.guest.run(show + ' $(cat $d/serial) $(cat $d/speed) $(cat $d/manufacturer)"; done; cd /root')
    assert {
        "0483:374b LEFT-1 12 utvm virtual board",
        "0483:374b RIGHT-2 12 utvm virtual board",
        "0d28:0204 DAP-3 480 utvm virtual board",
    } <= {line.strip() for line in found.split("\n")}
    assert bench.guest.run("ls /dev/ttyACM*").split() == ["/dev/ttyACM0", "/dev/ttyACM1"]
    assert not re.search(
        r"usb.*(error|fail|invalid|unable|warn|no interface)", bench.guest.run("dmesg"), re.IGNORECASE
    )


def test_of_two_alike_the_one_that_was_named_is_programmed(bench: Bench) -> None:
    said = _openocd(bench.guest, "st-link", "RIGHT-2", "program doubler.elf verify reset")
    assert "** Verified OK **" in said
    address, flash = bench.doubler.segments[0]
    assert address == FLASH
    assert bench.flash("RIGHT-2", len(flash)) == flash
    assert bench.flash("LEFT-1", 64) == b"\xff" * 64
    result = judge(bench.console("RIGHT-2"), bench.doubler, "instructions")
    assert result.outputs[0].tolist() == (2 * X).tolist()


def test_cmsis_dap_programs_too(bench: Bench) -> None:
    said = _openocd(bench.guest, "cmsis-dap", "DAP-3", "program doubler.elf verify reset")
    assert "** Verified OK **" in said
    result = judge(bench.console("DAP-3"), bench.doubler, "instructions")
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
    board.ask(signal.SIGUSR2, "plugged in")
    # A device that is plugged in again has another number on its bus.
    bench.guest.wait_for(f'test -n "$({_device_number("LEFT-1")} | grep -v "^{number.strip()}$")"')
    # The OpenOCD in the guest attaches to a board that went on, and did not start again.
    after, starts_after = _counts(_openocd(bench.guest, "st-link", "LEFT-1", f"init; {COUNTS}"))
    assert after > before
    assert starts_after == starts


def test_an_unplug_ends_the_openocd_that_is_at_work_and_the_next_one_works(bench: Bench) -> None:
    for kind, serial in (("st-link", "LEFT-1"), ("cmsis-dap", "DAP-3")):
        work = f"init; echo working; while 1 {{read_memory {SRAM:#x} 32 64}}"
        words = f"openocd -f {kind}.cfg -c 'adapter serial {serial}' -c '{work}'"
        bench.guest.run(f"rm -f log code; ({words} > log 2>&1; echo $? > code) & true")
        bench.guest.wait_for("grep -qs working log")
        bench.boards[serial].ask(signal.SIGUSR2, "plugged in")
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
