# SPDX-License-Identifier: Apache-2.0
"""Read protection: RDP of the STM32L4, L5, H7 (RM0432, 3.5; RM0438, 6.6; RM0433, 4.5), APPROTECT of the nRF52."""

from pathlib import Path

import pytest

from tests.virtual.target import FLASH, Target
from utvm.virtual.bus import BusError
from utvm.virtual.dap import SwDebugPort

# Option keys, option register, shift of RDP in it; control register and its start bit.
CHIPS = {
    "nucleo-l4r5zi": (0x4002200C, 0x40022020, 0, 0x40022014, 1 << 17),
    "nucleo-l552ze-q": (0x40022010, 0x40022040, 0, 0x40022028, 1 << 17),
    "nucleo-h743zi": (0x52002008, 0x52002020, 8, 0x52002018, 1 << 1),
}
KEYS = {"nucleo-l4r5zi": 0x40022008, "nucleo-l552ze-q": 0x40022008, "nucleo-h743zi": 0x52002004}


def _set_level(target: Target, board: str, level: int) -> int:
    """Program RDP and return its value afterwards."""
    option_keys, register, shift, control, start = CHIPS[board]
    for key in (0x45670123, 0xCDEF89AB):
        target.poke(KEYS[board], key)
    for key in (0x08192A3B, 0x4C5D6E7F):
        target.poke(option_keys, key)
    target.poke(register, target.peek(register) & ~(0xFF << shift) | level << shift)
    target.poke(control, start)
    target.poke(control, 1 << 31 | 1 << 30 if shift == 0 else 1)
    return target.peek(register) >> shift & 0xFF


@pytest.mark.parametrize("board", CHIPS)
def test_level_1_hides_the_flash(tmp_path: Path, board: str) -> None:
    with Target(tmp_path, board) as target:
        memory = next(memory for memory in target.machine._bus.memories if memory.start == FLASH)
        memory.bytes[:4] = b"\x78\x56\x34\x12"
        assert _set_level(target, board, 0xCC) == 0xAA  # level 2 is refused
        assert target.peek(FLASH) == 0x12345678
    with Target(tmp_path, board) as target:
        memory = next(memory for memory in target.machine._bus.memories if memory.start == FLASH)
        memory.bytes[:4] = b"\x78\x56\x34\x12"
        assert _set_level(target, board, 0x55) == 0x55
        with pytest.raises(BusError):
            target.peek(FLASH)
        target.machine.power_cycle()
        with pytest.raises(BusError):
            target.poke(FLASH, 0)
        assert _set_level(target, board, 0xAA) == 0xAA
        assert target.peek(FLASH) == 0xFFFFFFFF


def test_approtect_blocks_the_port_until_erased(tmp_path: Path) -> None:
    with Target(tmp_path, "nrf52840dk") as target:
        port = SwDebugPort(target.machine, target.machine.port_ids)

        def control(register: int) -> int:
            port.write(0x8, 1 << 24 | register & 0xF0)
            port.read_ap(register & 0xF)
            return port.read(0xC)

        port.write(0x4, 1 << 28 | 1 << 30)
        target.poke(0x4001E504, 1)
        target.poke(0x100, 0x12345678)
        target.poke(0x10001208, 0xFFFFFF00)
        assert (target.peek(0x100), control(0xC)) == (0x12345678, 1)
        target.machine.hold_reset()
        target.machine.release_reset()
        assert control(0xC) == 0
        for address in (0x100, 0x20000000, 0xE000EDF0):
            with pytest.raises(BusError):
                target.peek(address)
        port.write(0x8, 1 << 24)
        port.write_ap(0x4, 1)
        assert (control(0xC), control(0xFC)) == (1, 0x02880000)
        assert (target.peek(0x100), target.peek(0x10001208)) == (0xFFFFFFFF, 0xFFFFFFFF)
