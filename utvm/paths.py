# SPDX-License-Identifier: Apache-2.0
"""Paths: read-only files that come with utvm, and folders for output.

The files are the checkout itself, or a folder beside the package if utvm was installed from a wheel.
"""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Literal

import platformdirs

from utvm.errors import ConfigError

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent
"""Parent folder of the package: the checkout, if this is one (see :func:`need_checkout`)."""

_BUNDLED = ROOT / "utvm_data"
INSTALLED = _BUNDLED.is_dir()

DATA = _BUNDLED if INSTALLED else ROOT
"""Toolchains, suites with their models, the environment's lists and locks, schemas, guides: read-only."""

PROVISION = DATA / "provision"
"""Lists and locks of the environment."""

COMMAND = "utvm" if INSTALLED else "./inv"
"""Name of the program."""

PROJECT_FILE = "utvm.yaml"


def project() -> Path | None:
    """Return the nearest enclosing folder with a ``utvm.yaml``, or None.

    Since its suites are executed, the file counts only if it and its folder belong to this user, to root, or to
    the owner of the current folder, and the folder is not world-writable like ``/tmp``.
    """
    here = Path.cwd()
    trusted = {0, os.geteuid(), here.stat().st_uid}
    return next((folder for folder in (here, *here.parents) if _is_project(folder, trusted)), None)


def _is_project(folder: Path, trusted: Collection[int]) -> bool:
    file = folder / PROJECT_FILE
    try:
        owners = {folder.stat().st_uid, file.lstat().st_uid, file.stat().st_uid}
    except OSError:
        return False
    # In a folder like /tmp, anybody may put a folder with suites beside the file.
    is_shared = folder.stat().st_mode & 0o1002 == 0o1002
    return file.is_file() and owners <= set(trusted) and not is_shared


def work() -> Path:
    """Return the folder for reports, logs and builds.

    It is ``build`` in the project, else in the checkout; otherwise, or if the checkout is read-only, the user's
    state folder.
    """
    if current := project():
        return current / "build"
    build = ROOT / "build"
    if INSTALLED or not os.access(build if build.exists() else ROOT, os.W_OK):
        return user_folder("state")
    return build


def user_folder(kind: Literal["cache", "data", "state"]) -> Path:
    """Return the user's folder for files of that kind, such as ``~/.cache/utvm``."""
    find = {
        "cache": platformdirs.user_cache_path,
        "data": platformdirs.user_data_path,
        "state": platformdirs.user_state_path,
    }[kind]
    try:
        return find("utvm")
    except RuntimeError as error:
        raise ConfigError(
            "this account has no home directory", f"set HOME, or XDG_{kind.upper()}_HOME, to a folder of yours"
        ) from error


def need_checkout(what: str) -> None:
    """Raise unless this is a checkout; ``what`` names the command in the message."""
    if INSTALLED:
        raise ConfigError(
            f"{what} works only in a checkout of utvm, and this one is installed",
            "clone utvm's repository, and start inv there",
        )
