# SPDX-License-Identifier: Apache-2.0
"""Processes that start as copies of one that has loaded the modules of most commands.

Tests start hundreds of commands; a copy takes a third of a command's time. Each process has its own signals,
descriptors, variables and exit code.
"""

import multiprocessing
import os
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

# Without the plugin and its fixtures: pytest rewrites the assertions of plugins while it loads them.
_LOADED = [
    *("numpy", "onnx", "pydantic", "pytest", "tasks", "jsonschema", "rich.progress", "rich.table", "tflite"),
    *("utvm.__main__", "utvm.boards", "utvm.cli.model_run", "utvm.session.host_driven", "utvm.hil.html"),
    *("utvm.hil.report", "utvm.hil.display", "utvm.compiler.build", "utvm.compiler.host"),
]


def start_copy(
    function: Callable[[], None], cwd: Path, environment: Mapping[str, str], out: Path, err: Path
) -> BaseProcess:
    """Start a process that calls a function and ends; its output is written to two files."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(_LOADED)
    process = server.Process(target=_run, args=(function, cwd, environment, out, err))
    process.start()
    return process


def _run(function: Callable[[], None], cwd: Path, environment: Mapping[str, str], out: Path, err: Path) -> None:
    for number, path in ((1, out), (2, err)):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    function()
