# SPDX-License-Identifier: Apache-2.0
"""An engine, and the checkout's own image in it, once for all tests that need them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import inv
from tests.environment.own_engine import missing, own_engine


@pytest.fixture(scope="session")
def engine() -> Iterator[str]:
    """Where an engine listens that has nothing in it."""
    lacking = missing()
    if lacking:
        pytest.skip(f"this machine lacks {lacking}")
    with own_engine() as place:
        yield place


@pytest.fixture(scope="session")
def built(engine: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The image in the engine: what ``docker.build --json`` says of it. Its layers are made once for a lock."""
    figures = Path(tmp_path_factory.mktemp("figures")) / "image.json"
    done = inv("docker.build", "--json", figures, timeout=2400, DOCKER_HOST=engine)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(figures.read_text()))
