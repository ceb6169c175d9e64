# SPDX-License-Identifier: Apache-2.0
"""The System Control Space as one device: who holds which register (ARM DDI 0403E, B3.2)."""

from utvm.virtual.bus import Device


class SystemControlSpace(Device):
    """Hands each register of the 4 KiB at 0xE000E000 to the part it belongs to.

    Args:
        parts: (first offset, offset after the last, part). Parts see offsets from 0xE000E000.
    """

    size = 0x1000

    def __init__(self, parts: list[tuple[int, int, Device]]) -> None:
        self._parts = parts

    def load(self, offset: int) -> int:
        for start, end, part in self._parts:
            if start <= offset < end:
                return part.load(offset)
        return 0

    def store(self, offset: int, value: int, lanes: int) -> None:
        for start, end, part in self._parts:
            if start <= offset < end:
                part.store(offset, value, lanes)
                return
