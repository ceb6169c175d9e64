# SPDX-License-Identifier: Apache-2.0
"""State of the sources, and the computer that runs them.

A container or a virtual machine may have no git and another host name, so the command that starts a process there
passes both in a variable.
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
        commit: the commit that is checked out, in hexadecimal; None outside a checkout, or without git.
        dirty: True if a file differs from the commit or is untracked; None if unknown.
        hostname: the computer on which the command was given.
    """

    commit: str | None
    dirty: bool | None
    hostname: str


def read_checkout(root: Path | None = None) -> Checkout:
    """Ask git for the state of the current project, or of utvm itself."""
    root = root or project() or ROOT
    inherited = os.environ.get(_VARIABLE)
    if inherited:
        return Checkout(**json.loads(inherited))
    # --git-dir: a copy inside another repository is no checkout of ours. safe.directory: utvm's own checkout may
    # belong to another user, since its code runs anyway; for a project, git decides. No program watches files.
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


def checkout_variables() -> dict[str, str]:
    return {_VARIABLE: json.dumps(asdict(read_checkout()))}
