# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that drive a virtual board."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from virtual_rig import PROGRAM, TRANSPORTS, Program, Rig, assemble, rig_on


@pytest.fixture(scope="module", params=TRANSPORTS)
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One board for a module's tests, which leave it halted and without breakpoints."""
    with ExitStack() as stack:
        yield rig_on(stack, request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The program of :mod:`virtual_rig`."""
    return assemble(PROGRAM, tmp_path_factory.mktemp("program"))
