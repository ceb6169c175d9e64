# SPDX-License-Identifier: Apache-2.0
"""The places that are not here. One more is a class with ``run``, its line here, and its name in ``here.Kind``."""

from collections.abc import Callable

from utvm.choice import PlaceChoice
from utvm.environment.places.errand import Place
from utvm.environment.places.here import Kind
from utvm.environment.places.in_container import InContainer
from utvm.environment.places.in_farm import InFarm
from utvm.environment.places.in_machine import InMachine


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
