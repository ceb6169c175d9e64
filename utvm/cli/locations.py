# SPDX-License-Identifier: Apache-2.0
"""Remote locations. A new one is a class with ``run``, a row here, and its name in ``LocationKind``."""

from collections.abc import Callable

from utvm.environment.container import InContainer
from utvm.environment.machine.location import InMachine
from utvm.environment.remote import RemoteLocation
from utvm.farm.location import InFarm
from utvm.provenance.location import LocationKind
from utvm.selection import PlaceChoice


def elsewhere(kind: LocationKind, choice: PlaceChoice, say: Callable[[str], None]) -> RemoteLocation:
    """The remote location of a kind.

    Args:
        say: receives each step before a command runs there, and an empty text when it begins.
    """
    places: dict[LocationKind, Callable[[], RemoteLocation]] = {
        "docker": lambda: InContainer(say),
        "vm": lambda: InMachine(say),
        "farm": lambda: InFarm(say, choice),
    }
    return places[kind]()
