# SPDX-License-Identifier: Apache-2.0
"""Rules for all tests."""

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator

import hypothesis
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from hil_tests.programs import handwritten
from utvm import boards
from utvm.boards import PATH_VARIABLE, Board
from utvm.compiler import Library

# Garbage collection of old objects takes a quarter of the time of tests that create many objects.
gc.set_threshold(50_000)
# Virtual boards are locked here, so that tests and other runs on this machine do not affect each other.
_STATE = tempfile.mkdtemp(prefix="utvm-tests-")
os.environ["XDG_STATE_HOME"] = _STATE
# Only the project's boards are used, without the developer's own.
os.environ.pop(PATH_VARIABLE, None)

# No test depends on the speed of the computer.
hypothesis.settings.register_profile("utvm", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("utvm")

# A complete environment may lack other projects' models and the extras of pyproject.toml. A skip for a missing extra
# has this message: "PACKAGE, of the optional extra NAME, is not installed".
_OPTIONAL = ("UTVM_MODEL_CACHE", "optional extra")


def pytest_unconfigure() -> None:
    shutil.rmtree(_STATE, ignore_errors=True)


# Tests that share something slow to create: the real machine, which some check for remains, and the image in an
# engine.
_TOGETHER = (
    ("tests/environment/machine/",),
    ("tests/environment/test_container", "tests/environment/test_devcontainer", "tests/environment/test_locations"),
)


# The slowest tests come first, so that no worker runs them alone at the end.
_FIRST = (
    "tests/environment/machine/",
    "tests/test_end_to_end",
    "tests/environment/test_container",
    "tests/environment/test_locations",
    "tests/farm/test_farm",
    "tests/hil/test_nightly.py",
    "tests/hil/test_outcomes",
    "tests/virtual/usb/",
    "tests/compiler/test_misra",
    "tests/compiler/test_onnx_suite",
    "tests/vta/",
    "tests/cli/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the files by their duration; the order within a file does not change."""
    ranks = {prefix: rank for rank, prefix in enumerate(_FIRST)}
    items.sort(
        key=lambda item: min((ranks[name] for name in ranks if item.nodeid.startswith(name)), default=len(ranks))
    )


class _SharedScheduling(LoadFileScheduling):
    """Keeps the tests of a file together, and those of files that share something large."""

    def _split_scope(self, nodeid: str) -> str:
        shared = (group[0] for group in _TOGETHER if nodeid.startswith(group))
        return next(shared, None) or super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Schedule parallel tests so that there is one libvirt and one image."""
    return _SharedScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """In CI, make every skip a failure, except for optional parts."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    optional = any(text in str(report.longrepr) for text in _OPTIONAL)
    if report.skipped and os.environ.get("CI") and not optional and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but CI has everything: {report.longrepr}"


@pytest.fixture
def board() -> Board:
    return boards.load("stm32f746")


@pytest.fixture
def doubler() -> Library:
    """A library that doubles four int32 values."""
    return handwritten("doubler", "  for (int i = 0; i < 4; i++) { y[i] = 2 * x[i]; }\n  return 0;")
