"""The places that are not here. One more is a class with ``run``, its line here, and its name in ``here.Kind``."""

from collections.abc import Mapping

from utvm.environment.places.errand import Place
from utvm.environment.places.here import Kind
from utvm.environment.places.in_container import InContainer

ELSEWHERE: Mapping[Kind, Place] = {"docker": InContainer()}
