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

# Python's scans of what lives long take a quarter of the time of tests that make many objects.
gc.set_threshold(50_000)
# Virtual boards are locked here, so that tests do not meet a run that is under way on this machine.
_STATE = tempfile.mkdtemp(prefix="utvm-tests-")
os.environ["XDG_STATE_HOME"] = _STATE
# The boards are the project's, whatever else the developer has.
os.environ.pop(PATH_VARIABLE, None)

# No test has an opinion on how fast the computer is.
hypothesis.settings.register_profile("utvm", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("utvm")

# What a complete environment may lack: other people's models, and the extras of pyproject.toml. A skip for want of
# an extra says so in these words: "PACKAGE, of the optional extra NAME, is not installed".
_OPTIONAL = ("UTVM_MODEL_CACHE", "optional extra")


def pytest_unconfigure() -> None:
    """Leave nothing behind."""
    shutil.rmtree(_STATE, ignore_errors=True)


# Tests that share what takes long to make: the real machine, of which some look for what is left, and the image in
# an engine.
_TOGETHER = (
    ("tests/environment/machine/",),
    ("tests/environment/test_container", "tests/environment/test_devcontainer", "tests/environment/test_locations"),
)


# What takes longest comes first, so that no worker is left alone with it in the end.
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
    """Sort by how long files take; within a file nothing changes."""
    ranks = {prefix: rank for rank, prefix in enumerate(_FIRST)}
    items.sort(key=lambda item: min((ranks[one] for one in ranks if item.nodeid.startswith(one)), default=len(ranks)))


class _Shared(LoadFileScheduling):
    """Keeps the tests of one file together, and those of files that share something large."""

    def _split_scope(self, nodeid: str) -> str:
        shared = (group[0] for group in _TOGETHER if nodeid.startswith(group))
        return next(shared, None) or super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Where tests run beside each other, there is one libvirt and one image all the same."""
    return _Shared(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """In CI nothing may be missing but what is optional by design: any other skip is a failure there."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    optional = any(word in str(report.longrepr) for word in _OPTIONAL)
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
