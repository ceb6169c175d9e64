# SPDX-License-Identifier: Apache-2.0
"""``test``: run utvm's own tests."""

import os

import pytest

from utvm import errors, paths

_MARKS = {"quick": "not slow and not nightly", "usual": "not nightly", "nightly": ""}

# One process more than cores: tests often wait for machines and containers. Tests of one file stay together to
# share fixtures. tests/conftest.py defines the order.
_SPREAD = ("-n", str(min((os.cpu_count() or 1) + 1, 5)), "--dist", "loadfile", "--no-loadscope-reorder")

_EXIT_CODES = {
    pytest.ExitCode.OK: errors.ExitCode.PASSED,
    pytest.ExitCode.TESTS_FAILED: errors.ExitCode.FAILED,
    pytest.ExitCode.NO_TESTS_COLLECTED: errors.ExitCode.FAILED,
}


def run_tests(quick: bool, nightly: bool) -> errors.ExitCode:
    if quick and nightly:
        raise errors.ConfigError("--quick and --nightly exclude each other", "give one, or neither")
    marks = _MARKS["quick" if quick else "nightly" if nightly else "usual"]
    os.chdir(paths.ROOT)
    # Some tests start a command hundreds of times: compile its modules once.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return _EXIT_CODES.get(pytest.ExitCode(pytest.main(["-m", marks, *_SPREAD])), errors.ExitCode.INFRASTRUCTURE)
