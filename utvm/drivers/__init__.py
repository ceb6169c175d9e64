# SPDX-License-Identifier: Apache-2.0
"""Opens boards, whatever they are and however they are reached.

:func:`choose` selects a board and its driver. :func:`attach` does so and opens it: it locks a physical board,
starts the processes that it needs (a virtual board and OpenOCD, QEMU, the console) and stops them when its
``with`` block ends. The rest of the project uses a board through :class:`Connection`.

A driver is a module of ``builtin/``, or of an installed package; nothing else knows which there are.
"""

from utvm.drivers.connection import Connection
from utvm.drivers.driver import BoardIdentity, Driver, ReachableBoard, Setup, settings_of
from utvm.drivers.table import all_drivers, attach, capabilities_of, choose, drivers_for

__all__ = [
    "BoardIdentity",
    "Connection",
    "Driver",
    "ReachableBoard",
    "Setup",
    "all_drivers",
    "attach",
    "capabilities_of",
    "choose",
    "drivers_for",
    "settings_of",
]
