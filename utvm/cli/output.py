"""Where the command line prints: one rich console, plain when the output is not a terminal."""

from rich.console import Console
from rich.markup import escape

from utvm.paths import ROOT

LOGS = ROOT / "build" / "logs"
OUT = Console(highlight=False, soft_wrap=True)


def tell(what: str) -> None:
    """Print what is being done before a command's own work: one line a step, so that a log has it too."""
    OUT.print(f"[dim]{escape(what)}[/]")
