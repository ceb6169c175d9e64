# SPDX-License-Identifier: Apache-2.0
"""Which state of the sources this is, and on which computer: what a report is looked up by later.

In a container or a machine there may be no git, and the computer has another name; whoever starts a command there
tells it by a variable.
"""

import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

from utvm.base.process.run import run_tool
from utvm.errors import UtvmError
from utvm.paths import ROOT, project

_TOLD = "UTVM_CHECKOUT"


@dataclass(frozen=True)
class Checkout:
    """The sources that run.

    Attributes:
        commit: the commit that is checked out, in hexadecimal; None where this is no checkout, or without git.
        dirty: whether a file differs from it, or is new and not ignored; None where that is not known.
        hostname: of the computer at which the command was given.
    """

    commit: str | None
    dirty: bool | None
    hostname: str


def read_checkout(root: Path | None = None) -> Checkout:
    """Look at the sources: those of the current project, else our own."""
    root = root or project() or ROOT
    said = os.environ.get(_TOLD)
    if said:
        return Checkout(**json.loads(said))
    # Named: a copy of it in somebody else's repository is none. This checkout may belong to another user: its code
    # runs anyway. Whether a project may, git decides. Git runs no program to watch files.
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
    """Return the variable that tells a command in another place."""
    return {_TOLD: json.dumps(asdict(read_checkout()))}
