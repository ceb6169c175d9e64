# SPDX-License-Identifier: Apache-2.0
"""The project's licence: every source file names it."""

import subprocess
from pathlib import Path

from utvm.paths import ROOT

_LINE = "SPDX-License-Identifier: Apache-2.0"
_SOURCES = (".py", ".c", ".h", ".S", ".sh", ".rb")
_SCRIPTS = ("inv", ".ci/run")
# They become part of packages, which have their own LICENSE.
_GOES_INTO_PACKAGES = ("utvm/compiler/c/", "utvm/compiler/package/templates/", "utvm/runtime/portable/")
# These files are locked: another byte would be another environment.
_LOCKED = ("provision/",)


def _sources() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [
        ROOT / name
        for name in listing.stdout.split("\0")
        if (name.endswith(_SOURCES) or name in _SCRIPTS)
        and not name.startswith(_LOCKED)
        and (name.endswith(".py") or not name.startswith(_GOES_INTO_PACKAGES))
    ]


def test_every_source_file_names_its_licence() -> None:
    files = _sources()
    assert len(files) > 500
    without = [
        str(path.relative_to(ROOT))
        for path in files
        if path.exists() and _LINE not in "".join(path.read_text(encoding="utf-8").splitlines()[:2])
    ]
    assert without == []


def test_files_of_packages_name_no_licence() -> None:
    for folder in _GOES_INTO_PACKAGES:
        for path in (ROOT / folder).rglob("*.[ch]"):
            assert "SPDX" not in path.read_text(encoding="utf-8"), path
