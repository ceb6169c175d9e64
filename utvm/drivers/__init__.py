# SPDX-License-Identifier: Apache-2.0
"""The one door to every board: what is on the bench, and the ways to get it there.

:func:`choose` decides which one of a board is meant and how it is reached; :func:`attach` does so and opens it: it
holds a physical board's lock, starts what is needed (a virtual board and OpenOCD, or QEMU, and the console) and
ends all of it when its ``with`` block ends. :class:`Bench` is what the rest of the project sees of a board.

A way is a module of ``ways/``, or of an installed package; nothing else knows which there are.
"""

from utvm.drivers.connection import Connection
from utvm.drivers.driver import BoardIdentity, Driver, DriverOptions, ReachableBoard, Setup, block_of
from utvm.drivers.table import attach, capabilities_of, choose, serving, table

__all__ = [
    "BoardIdentity",
    "Connection",
    "Driver",
    "DriverOptions",
    "ReachableBoard",
    "Setup",
    "attach",
    "block_of",
    "capabilities_of",
    "choose",
    "serving",
    "table",
]
