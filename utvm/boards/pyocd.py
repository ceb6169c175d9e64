# SPDX-License-Identifier: Apache-2.0
"""Where pyOCD is: on PATH, in an environment of its own, or beside utvm, as in a checkout."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

INSTALL = "pipx install pyocd; or pip install 'utvm[pyocd]'"


@dataclass(frozen=True)
class Installed:
    """A pyOCD: the program, and the Python that has it, as words of a command line."""

    program: Path
    python: tuple[str, ...]


def find() -> Installed | None:
    """Return the pyOCD that is installed; None where none is."""
    beside = Path(sys.executable).with_name("pyocd")
    program = shutil.which("pyocd") or (str(beside) if beside.is_file() else None)
    if program is None:
        return None
    if Path(program) == beside:  # Its first line names where it was installed, which may since have been moved.
        return Installed(beside, (sys.executable,))
    first = Path(program).read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    return Installed(Path(program), tuple(first.removeprefix("#!").split()))
