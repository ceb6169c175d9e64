# SPDX-License-Identifier: Apache-2.0
"""What every pipe comes to."""

from collections.abc import Callable
from dataclasses import dataclass

from utvm.session.transport import Transport


@dataclass(frozen=True)
class Wire:
    """A board within reach.

    Attributes:
        transport: the bytes to it and from it.
        restart: resets the board and lets it run; from then on it can take bytes.
    """

    transport: Transport
    restart: Callable[[], None]
