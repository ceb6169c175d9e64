# SPDX-License-Identifier: Apache-2.0
"""The table of contents: the commands of ``utvm/cli/commands``, in groups."""

import os
import sys
from pathlib import Path

# As --list shows them: a name, or a namespace with its dot.
GROUPS = {
    "Quick start": ("hil", "init", "nightly", "dashboard", "doctor"),
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

from utvm.cli import load_commands  # noqa: E402  not before the hand-over

namespace = load_commands()
