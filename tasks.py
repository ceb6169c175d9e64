# SPDX-License-Identifier: Apache-2.0
"""The table of contents: which namespace of commands is which module of ``utvm/cli``."""

import os
import sys
from importlib import import_module
from pathlib import Path

from invoke import Collection

NAMESPACES = {
    "": "root",
    "board": "board",
    "model": "model",
    "firmware": "firmware",
    "project": "project",
    "mlperf": "mlperf",
    "history": "history",
    "farm": "farm",
    "docs": "docs",
    "env": "env",
    "docker": "docker",
    "vm": "vm",
    "cache": "cache",
}

# As --list shows them: a name, or a namespace with its dot.
GROUPS = {
    "Quick start": ("hil", "init", "nightly", "doctor"),
    "Models and firmware": ("model.", "firmware.", "project.", "mlperf."),
    "Boards": ("board.",),
    "History and regressions": ("history.",),
    "Board farm": ("farm.",),
    "Locked environment": ("docker.", "vm.", "env.", "cache."),
    "Documentation": ("docs.",),
    "Development of utvm": ("test",),
}

# Invoke's own program, which knows neither this checkout's Python nor its exit codes.
if "invoke.main" in sys.modules:
    inv = str(Path(__file__).resolve().parent / "inv")
    os.execv(inv, [inv, *sys.argv[1:]])

namespace = Collection()
for _name, _module in NAMESPACES.items():
    _commands = Collection.from_module(import_module(f"utvm.cli.{_module}"), name=_name or None)
    if _name:
        namespace.add_collection(_commands)
    else:
        namespace = _commands
