"""Where the command line prints: one rich console, plain when the output is not a terminal."""

import os
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from utvm.logs import log_folder
from utvm.paths import work

OUT = Console(highlight=False, soft_wrap=True)


def logs_of(command: str) -> Path:
    """Return a folder for the logs of what this process starts."""
    return log_folder(work() / "logs" / f"{command}-{os.getpid()}")


def tell(what: str) -> None:
    """Print what is being done before a command's own work: one line a step, so that a log has it too."""
    OUT.print(f"[dim]{escape(what)}[/]")
