# SPDX-License-Identifier: Apache-2.0
"""What the flash controllers of STM32s have in common: keys that open them, and how an operation ends.

An operation is over at once, but shows BSY to the first look at SR, so that software that does not wait is found
out.
"""

from collections.abc import Callable
from itertools import accumulate

from utvm.virtual.bus import Device, MemoryBank

KEYS = (0x45670123, 0xCDEF89AB)
OPTION_KEYS = (0x08192A3B, 0x4C5D6E7F)

# SR
EOP = 1 << 0
OPERR = 1 << 1
BSY = 1 << 16

# CR
EOPIE = 1 << 24
ERRIE = 1 << 25
LOCK = 1 << 31


class EmbeddedFlash(Device):
    """A controller that takes all writes to a flash.

    Args:
        memory: the flash; its sectors are what is erased at once.
        changed: told the first address and the address after a change of what the flash holds.
        set_line: drives the interrupt line.
    """

    def __init__(
        self, memory: MemoryBank, changed: Callable[[int, int], None], set_line: Callable[[bool], None]
    ) -> None:
        self._memory = memory
        self._changed = changed
        self._set_line = set_line
        ends = list(accumulate(memory.region.sectors))
        self._sectors = list(zip([0, *ends[:-1]], ends, strict=True))
        self.reset()

    def reset(self) -> None:
        self._control = LOCK
        self._status = 0
        self._unlocking = KeySequence(KEYS)
        self._option_unlocking = KeySequence(OPTION_KEYS)
        self._set_line(False)

    def _take_status(self) -> int:
        status = self._status
        self._status &= ~BSY
        return status

    def _replace(self, offset: int, data: bytes) -> None:
        self._memory.bytes[offset : offset + len(data)] = data
        self._changed(self._memory.start + offset, self._memory.start + offset + len(data))
        self._status |= BSY | (EOP if self._control & EOPIE else 0)
        self._drive_line()

    def _fail(self, error: int) -> None:
        self._status |= error | (OPERR if self._control & ERRIE else 0)
        self._drive_line()

    def _drive_line(self) -> None:
        # EOP and OPERR are only set while their interrupts are enabled.
        self._set_line(bool(self._status & (EOP | OPERR)))


class KeySequence:
    """Two keys in order open a lock; anything else keeps it shut until the next reset."""

    def __init__(self, keys: tuple[int, int]) -> None:
        self._keys = keys
        self._expected = list(keys)
        self._spoilt = False

    def close(self) -> None:
        """Ask for both keys again."""
        self._expected = list(self._keys)

    def take(self, key: int) -> bool:
        """Take a key. Returns whether the lock opens."""
        if self._spoilt or not self._expected or key != self._expected.pop(0):
            self._spoilt = True
            return False
        return not self._expected
