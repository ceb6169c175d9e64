# SPDX-License-Identifier: Apache-2.0
"""The places that are not here. One more is a class with ``run``, its line here, and its name in ``here.Kind``."""

from collections.abc import Callable

from utvm.environment.locations.here import Kind
from utvm.environment.locations.in_container import InContainer
from utvm.environment.locations.in_machine import InMachine
from utvm.environment.locations.remote_command import Place
from utvm.farm.location import InFarm
from utvm.selection import PlaceChoice


def elsewhere(kind: Kind, choice: PlaceChoice, say: Callable[[str], None]) -> Place:
    """Return a place that is not here.

    Args:
        choice: what its options say.
        say: is told what is being done before a command runs there, and nothing when it begins.
    """
    places: dict[Kind, Callable[[], Place]] = {
        "docker": lambda: InContainer(say),
        "vm": lambda: InMachine(say),
        "farm": lambda: InFarm(say, choice),
    }
    return places[kind]()
