# SPDX-License-Identifier: Apache-2.0
"""Runs pytest many times, each in a copy of a process with loaded libraries but without the code under test.

A request is a line of JSON: a time limit in seconds, then pytest's arguments. The reply is a line with the exit code,
or a negative signal number.
"""

import importlib
import json
import os
import signal
import sys
from contextlib import suppress

import pytest

_LIBRARIES = ("numpy", "tvm", "onnx", "pydantic", "jinja2", "hypothesis", "xdist.scheduler")


def _run(limit: int, arguments: list[str]) -> int:
    child = os.fork()
    if not child:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        signal.alarm(limit)
        os._exit(pytest.main(arguments))
    _, status = os.waitpid(child, 0)
    # End commands that a mutant has left running.
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    for library in _LIBRARIES:
        importlib.import_module(library)
    for line in sys.stdin:
        seconds, *words = json.loads(line)
        print(_run(seconds, words), flush=True)
