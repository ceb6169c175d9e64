# SPDX-License-Identifier: Apache-2.0
"""Commit of the sources and name of the computer, for reports.

In a container or machine there may be no git, and another host name: an environment variable carries both there.
"""

import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

from utvm.base.process.run import run_tool
from utvm.errors import UtvmError
from utvm.paths import ROOT, project

_VARIABLE = "UTVM_CHECKOUT"


@dataclass(frozen=True)
class Checkout:
    """The sources that run.

    Attributes:
        commit: in hexadecimal; None outside of a checkout, or without git.
        dirty: a file was changed or added; None if unknown.
        hostname: of the computer at which the command was given.
    """

    commit: str | None
    dirty: bool | None
    hostname: str


def read_checkout(root: Path | None = None) -> Checkout:
    """Commit of the current project, else of utvm itself."""
    root = root or project() or ROOT
    if text := os.environ.get(_VARIABLE):
        return Checkout(**json.loads(text))
    # With --git-dir, a copy inside another repository does not count. utvm's own checkout may belong to another
    # user: its code runs anyway; for a project, git decides. Git must start no program to watch files.
    git = [
        "git",
        "--no-optional-locks",
        *("-c", "core.fsmonitor=false"),
        *(("-c", f"safe.directory={root}") if root == ROOT else ()),
        *(f"--git-dir={root / '.git'}", f"--work-tree={root}"),
    ]
    try:
        commit = run_tool([*git, "rev-parse", "--verify", "HEAD"], cwd=root, timeout=30).strip()
        changed = run_tool([*git, "status", "--porcelain"], cwd=root, timeout=60)
    except UtvmError:
        return Checkout(None, None, platform.node())
    return Checkout(commit, bool(changed.strip()), platform.node())


def checkout_variable() -> dict[str, str]:
    """Environment variable for a command at another location."""
    return {_VARIABLE: json.dumps(asdict(read_checkout()))}
