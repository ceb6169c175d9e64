# SPDX-License-Identifier: Apache-2.0
"""Stimulus ports and SWO of a virtual Cortex-M; packets as ARM DDI 0403E, D4, frames as ARM IHI 0029E, D4.2."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import inv
from tests.virtual.target import DEMCR, TRCENA, Target

_TER, _TPR, _TCR = 0xE0000E00, 0xE0000E40, 0xE0000E80
_SPPR, _FFCR, _UART, _CONTINUOUS = 0xE00400F0, 0xE0040304, 2, 0x102
_ON, _STAMPS, _ID = 1, 2, 0x15 << 16

_PORTS = """
    ldr r0, =0xE0000000
    movs r1, #'H'
    strb r1, [r0]
    ldr r1, =0x1234
    strh r1, [r0, #4]
    ldr r1, =0xDEADBEEF
    str r1, [r0, #124]
"""
# Header: port in bits 3 to 7, then 1, 2 or 3 for a byte, a halfword or a word
_PACKETS = bytes.fromhex("0148 0a3412 fbefbeadde")


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    with Target(tmp_path, "stm32f407") as target:
        yield target


def _trace(target: Target, program: str, control: int = _ON, ports: int = 0xFFFFFFFF, format_: int = 0) -> bytes:
    target.load(f"handler reset\n{program}\ndone\n")
    for address, value in ((_TCR, control), (_TER, ports), (_SPPR, _UART), (_FFCR, format_)):
        target.poke(address, value)
    target.machine.trace.clear()
    target.resume()
    target.wait_for_halt()
    return bytes(target.machine.trace)


def test_store_to_a_port_is_a_packet(target: Target) -> None:
    assert _trace(target, _PORTS) == _PACKETS


def test_disabled_port_sends_nothing(target: Target) -> None:
    assert _trace(target, _PORTS, ports=1 << 1) == _PACKETS[2:5]
    assert _trace(target, _PORTS, control=0) == b""
    target.poke(_TCR, _ON)
    target.poke(_TER, 1 << 1)
    for enabled in (TRCENA, 0):
        target.poke(DEMCR, enabled)
        assert [target.peek(0xE0000000 + offset) for offset in (0, 4)] == [0, bool(enabled)]


def test_unit_is_unlocked_before_it_is_enabled(target: Target) -> None:
    turn_on = "ldr r0, =0xE0000E80\nmovs r1, #1\nstr r1, [r0]\n"
    unlock = "ldr r0, =0xE0000FB0\nldr r1, =0xC5ACCE55\nstr r1, [r0]\n"
    assert _trace(target, turn_on + _PORTS, control=0) == b""
    assert _trace(target, unlock + turn_on + _PORTS, control=0) == _PACKETS


def test_unprivileged_code_sends_on_public_ports(target: Target) -> None:
    drop = "movs r0, #1\nmsr control, r0\nisb\n"
    assert _trace(target, drop + _PORTS) == _PACKETS
    target.poke(_TPR, 1)
    assert _trace(target, drop + _PORTS) == _PACKETS[5:]


def test_timestamps_count_instructions_between_packets(target: Target) -> None:
    three = (
        "ldr r0, =0xE0000000\nmovs r1, #0x55\nstrb r1, [r0]\nnop\nstrb r1, [r0]\n" + "nop\n" * 199 + "strb r1, [r0]\n"
    )
    packets = _trace(target, three, control=_ON | _STAMPS)
    # The first one counts from power-on. Then 2 ticks, in the short form; 200, as 0x48 and 1 in groups of seven bits
    assert packets.endswith(bytes.fromhex("0155 20 0155 c0c801"))


def test_formatter_sends_frames_of_sixteen_bytes(target: Target) -> None:
    program = "ldr r0, =0xE0000000\n" + "".join(f"movs r1, #{n}\nstrb r1, [r0]\n" for n in range(0x41, 0x49))
    frame = _trace(target, program, control=_ON | _ID, format_=_CONTINUOUS)
    # 0x15 << 1 | 1 is the source, then 01 41 01 42 ...; bytes at even positions have bit 0 in the last byte.
    assert frame == bytes.fromhex("2b 01 40 01 42 01 42 01 44 01 44 01 46 01 46 aa")


def test_nothing_is_sent_without_the_uart_mode(target: Target) -> None:
    target.load(f"handler reset\n{_PORTS}\ndone\n")
    target.machine.trace.clear()
    for address, value in ((_TCR, _ON), (_TER, 1), (_SPPR, 1), (_FFCR, 0)):
        target.poke(address, value)
    target.resume()
    target.wait_for_halt()
    assert not target.machine.trace


@pytest.mark.slow
def test_openocd_writes_swo_into_a_file(tmp_path: Path) -> None:
    source, elf, swo = tmp_path / "ports.s", tmp_path / "ports.elf", tmp_path / "swo.bin"
    source.write_text(f".syntax unified\n.word 0x20010000, main + 1\n.thumb_func\nmain: {_PORTS}\n1: wfi\nb 1b\n")
    flags = ["-mcpu=cortex-m4", "-mthumb", "-nostdlib", "-Wl,-Ttext=0x08000000", "-Wl,-e,main"]
    subprocess.run(["arm-none-eabi-gcc", *flags, "-o", elf, source], check=True, timeout=60)
    flashed = inv("firmware.flash", elf, "--board=nucleo-h743zi", "--virtual", "--monitor=0.5", "--swo", swo)
    assert flashed.returncode == 0, flashed.stderr
    assert f"SWO: {len(_PACKETS)} bytes in {swo}" in flashed.stdout.replace("\n", "")
    assert swo.read_bytes() == _PACKETS
