# SPDX-License-Identifier: Apache-2.0
"""Where things are: what comes with utvm and is only read, and where work is put.

In a checkout what comes with utvm is the checkout; installed from a wheel, it is a folder beside the package.
"""

from pathlib import Path

import platformdirs

from utvm.errors import ConfigError

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent
"""The folder that the package lies in: the checkout, where this is one (see :func:`need_checkout`)."""

_BUNDLED = ROOT / "utvm_data"
INSTALLED = _BUNDLED.is_dir()

DATA = _BUNDLED if INSTALLED else ROOT
"""Toolchains, suites with their models, the environment's lists and locks, schemas, guides: never written to."""

COMMAND = "utvm" if INSTALLED else "./inv"
"""How the program is called."""

PROJECT_FILE = "utvm.yaml"


def project() -> Path | None:
    """Return the folder of the project that the current folder is in: the nearest with a ``utvm.yaml``."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / PROJECT_FILE).is_file()), None)


def work() -> Path:
    """Return the folder for what is made: reports, logs, builds.

    It is ``build`` in the project, else in the checkout; without either, the user's own folder for such things.
    """
    if found := project():
        return found / "build"
    return platformdirs.user_state_path("utvm") if INSTALLED else ROOT / "build"


def need_checkout(what: str) -> None:
    """Refuse what works only in a checkout."""
    if INSTALLED:
        raise ConfigError(
            f"{what} works only in a checkout of utvm, and this one is installed",
            "clone utvm's repository, and start inv there",
        )
