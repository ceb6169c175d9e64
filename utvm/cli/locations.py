# SPDX-License-Identifier: Apache-2.0
"""The other locations. To add one: a class with ``run``, a line here, and its name in ``location.Kind``."""

from collections.abc import Callable

from utvm.environment.container import InContainer
from utvm.environment.location import Kind
from utvm.environment.machine.location import InMachine
from utvm.environment.remote import RemoteLocation
from utvm.farm.location import InFarm
from utvm.selection import PlaceChoice


def elsewhere(kind: Kind, choice: PlaceChoice, say: Callable[[str], None]) -> RemoteLocation:
    """Return a place that is not here.

    Args:
        choice: what its options say.
        say: is told what is being done before a command runs there, and nothing when it begins.
    """
    places: dict[Kind, Callable[[], RemoteLocation]] = {
        "docker": lambda: InContainer(say),
        "vm": lambda: InMachine(say),
        "farm": lambda: InFarm(say, choice),
    }
    return places[kind]()
