# SPDX-License-Identifier: Apache-2.0
"""Three VTAs: the one that bitstreams were built for, one of small blocks and buffers, one of two rows a batch."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from utvm.runtime.vta.configuration import DEFAULT, load_configuration
from utvm.virtual.vta.simulator import Simulator, simulator

CONFIGURATIONS = {
    path.stem: path for path in (DEFAULT, *(Path(__file__).parent / "configurations").glob("*.json"))
}


@pytest.fixture(params=sorted(CONFIGURATIONS))
def vta(request: pytest.FixtureRequest) -> Iterator[Simulator]:
    """A model of each, with nothing counted."""
    model = simulator(load_configuration(CONFIGURATIONS[request.param]))
    model.clear()
    yield model
    model.look_first_after("load")


@pytest.fixture
def default_vta() -> Simulator:
    """The model of the default one, with nothing counted."""
    model = simulator(load_configuration())
    model.clear()
    return model
