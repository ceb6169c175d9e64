# SPDX-License-Identifier: Apache-2.0
"""Processes that begin as copies of one that has loaded the modules of most commands.

Tests start hundreds of commands; a copy spares two thirds of a command's time. Signals, descriptors, variables
and exit codes are a process's own.
"""

import multiprocessing
import os
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

# Not the plugin itself and its fixtures: pytest rewrites the assertions of plugins while it loads them.
_LOADED = [
    *("numpy", "onnx", "pydantic", "pytest", "tasks", "jsonschema", "rich.progress", "rich.table", "tflite"),
    *("utvm.__main__", "utvm.boards", "utvm.cli.model_run", "utvm.session.host_driven", "utvm.hil.html"),
    *("utvm.hil.report", "utvm.hil.display", "utvm.compiler.build", "utvm.compiler.host"),
]


def begin_copy(
    function: Callable[[], None], cwd: Path, environment: Mapping[str, str], out: Path, err: Path
) -> BaseProcess:
    """Begin a process that calls a function and ends; its output goes into two files."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(_LOADED)
    process = server.Process(target=_become, args=(function, cwd, environment, out, err))
    process.start()
    return process


def _become(function: Callable[[], None], cwd: Path, environment: Mapping[str, str], out: Path, err: Path) -> None:
    for number, path in ((1, out), (2, err)):
        place = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(place, number)
        os.close(place)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    function()
