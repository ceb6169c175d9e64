# SPDX-License-Identifier: Apache-2.0
"""DMAMUX, which selects the requests of DMA channels (RM0432, 12; RM0433, 17), without overrun flags."""

import functools
import re
from collections.abc import Mapping
from pathlib import Path

from utvm.virtual.bus import PlainRegisters
from utvm.virtual.wiring import Wiring

_TEXT = Path(__file__).with_suffix(".txt")
_GENERATORS, _STATUS = 0x100, 0x120
_REQUEST, _EGE, _SE = 0x7F, 1 << 9, 1 << 16  # of CxCR; RGxCR has GE at the place of SE
_POLARITY_SHIFT, _NUMBER_SHIFT, _SYNC_SHIFT = 17, 19, 24


class Dmamux(PlainRegisters):
    """Multiplexer, request generators and synchronization. A channel's request is the signal ``DMAMUX1_0``..."""

    def __init__(self, after_reset: Mapping[int, int], wiring: Wiring, family: str) -> None:
        self._signals, self._name = wiring.signals, wiring.name
        self._channels = sum(offset < 0x80 for offset in after_reset)
        rows = re.sub(r"\n ", "", _TEXT.read_text()).splitlines()
        lists = [row.split()[3:] for row in rows if row.startswith(f"{family} {wiring.name} ")]
        requests, self._generators, self._synchronization = lists
        self._levels: dict[int, bool | None] = {}  # None for a pulse that no channel has taken
        super().__init__(after_reset)
        for number, name in enumerate(requests, 1):
            self._signals.listen(name, functools.partial(self._request, number))
        for name in {*self._generators, *self._synchronization}:
            self._signals.listen(name, functools.partial(self._trigger, name))

    def reset(self) -> None:
        super().reset()
        self._allowed = [0] * self._channels  # requests that the last synchronization event lets pass
        for channel in range(self._channels):
            self._signals.set(f"{self._name}_{channel}", False)

    def store(self, offset: int, value: int, lanes: int) -> None:
        super().store(offset, value, lanes)
        if offset < 4 * self._channels:
            self._pass(offset // 4)

    def _request(self, number: int, level: bool | None) -> None:
        self._levels[number] = level
        for channel in range(self._channels):
            if self.load(4 * channel) & _REQUEST == number:
                self._pass(channel)

    def _pass(self, channel: int) -> None:
        control, name = self.load(4 * channel), f"{self._name}_{channel}"
        number = control & _REQUEST
        level = self._levels.get(number, False)
        if level is None:
            self._levels[number] = False
        if not control & _SE:
            self._signals.set(name, level)
            return
        self._signals.set(name, False)
        while self._allowed[channel] and level is not False:
            self._allowed[channel] -= 1
            self._signals.set(name, None)
            if control & _EGE and not self._allowed[channel]:
                self._signals.set(f"{self._name}_EVT{channel}", None)
            level = self._levels.get(number, False)

    def _trigger(self, source: str, level: bool | None) -> None:
        edges = (3 if level is None else 1 if level else 2) << _POLARITY_SHIFT
        for offset in (*range(_GENERATORS, _STATUS, 4), *range(0, 4 * self._channels, 4)):
            control, generates = self.load(offset), offset >= _GENERATORS
            names = self._generators if generates else self._synchronization
            selection = control & 31 if generates else control >> _SYNC_SHIFT
            if not control & _SE or not control & edges or names[selection & 31 :][:1] != [source]:
                continue
            number = (control >> _NUMBER_SHIFT & 31) + 1
            if generates:
                for _ in range(number):
                    self._request(1 + (offset - _GENERATORS) // 4, None)
            else:
                self._allowed[offset // 4] = number
                self._pass(offset // 4)
