# SPDX-License-Identifier: Apache-2.0
"""The faults of a board that is a process on this computer: signals."""

import signal
from collections.abc import Sequence

from utvm.session.fault.meaning import Architecture, Meaning

_FIRST_SIGNAL = 0x10000  # utvm/runtime/host/port.c


def _meaning(exception: int, _: Sequence[int]) -> Meaning:
    number = exception - _FIRST_SIGNAL
    return Meaning(signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}")


PROCESS = Architecture((), "", "", _meaning)
