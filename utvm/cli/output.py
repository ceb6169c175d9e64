# SPDX-License-Identifier: Apache-2.0
"""Where the command line prints: one rich console, plain when the output is not a terminal."""

import os
from pathlib import Path

from rich.text import Text

from utvm.logs import log_folder
from utvm.names import printable
from utvm.paths import work
from utvm.terminal import Terminal

OUT = Terminal(markup=False, soft_wrap=True)
"""Words are printed as they are: style is given by :class:`rich.text.Text`, never by words."""


def logs_of(command: str) -> Path:
    """Return a folder for the logs of what this process starts."""
    return log_folder(work() / "logs" / f"{command}-{os.getpid()}")


def tell(what: str) -> None:
    """Print what is being done before a command's own work: one line a step, so that a log has it too."""
    OUT.print(Text(printable(what), style="dim"))
