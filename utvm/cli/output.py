"""Where the command line prints: one rich console, plain when the output is not a terminal."""

from rich.console import Console

OUT = Console(highlight=False, soft_wrap=True)
