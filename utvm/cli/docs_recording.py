# SPDX-License-Identifier: Apache-2.0
"""Draws a terminal with what a command prints, for the README."""

import io
import os
import re
import subprocess
from pathlib import Path

from rich.console import Console
from rich.text import Text

from utvm.errors import BoardError
from utvm.paths import COMMAND, ROOT

_WIDTH = 100
_BRIEF = re.compile(r"^\[ *\d+/\d+\] ")
_SHOWN_TESTS = 6
_FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)  # Would be fetched from another host.


def record(words: list[str], output: Path) -> None:
    """Run ``./inv`` and draw its output as an SVG, with the first few lines of tests only."""
    environment = {**os.environ, "COLUMNS": str(_WIDTH)}
    run = subprocess.run(
        [COMMAND, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        cwd=ROOT,
        check=False,
    )
    if run.returncode:
        raise BoardError(f"./inv {' '.join(words)} ended with exit code {run.returncode}", run.stdout[-500:])
    console = Console(record=True, width=_WIDTH, file=io.StringIO())
    console.print(f"$ ./inv {' '.join(words)}", style="bold", highlight=False)
    for line in _shorten(run.stdout.replace(str(ROOT), ".").splitlines()):
        console.print(_styled(line), no_wrap=True, overflow="ellipsis")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(_FONT.sub("", console.export_svg(title="utvm")), encoding="utf-8")


def _shorten(lines: list[str]) -> list[str]:
    """Leave out all but the first tests, and say how many were left out."""
    tests = [number for number, line in enumerate(lines) if _BRIEF.match(line)]
    hidden = set(tests[_SHOWN_TESTS:])
    shown: list[str] = []
    for number, line in enumerate(lines):
        if number not in hidden:
            shown.append(line)
        elif number == tests[_SHOWN_TESTS]:
            shown.append(f"… {len(hidden)} more tests")
    return shown


def _styled(line: str) -> Text:
    style = "bold green" if line.startswith("PASSED") else "dim" if line.startswith(("…", "[")) else ""
    return Text(line, style=style)
