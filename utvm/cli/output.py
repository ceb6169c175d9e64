"""Where the command line prints: one rich console, plain when the output is not a terminal."""

from rich.console import Console

from utvm.paths import ROOT

LOGS = ROOT / "build" / "logs"
OUT = Console(highlight=False, soft_wrap=True)
