# SPDX-License-Identifier: Apache-2.0
"""VTA models of three configurations."""

from collections.abc import Iterator

import pytest
from three_vtas import CONFIGURATIONS

from utvm.runtime.vta.configuration import load_configuration
from utvm.virtual.vta.simulator import VtaSimulator, simulator


@pytest.fixture(params=sorted(CONFIGURATIONS))
def vta(request: pytest.FixtureRequest) -> Iterator[VtaSimulator]:
    """A model of each configuration, with cleared statistics."""
    model = simulator(load_configuration(CONFIGURATIONS[request.param]))
    model.clear()
    yield model
    model.look_first_after("load")


@pytest.fixture
def default_vta() -> VtaSimulator:
    """A model of the default configuration, with cleared statistics."""
    model = simulator(load_configuration())
    model.clear()
    return model
