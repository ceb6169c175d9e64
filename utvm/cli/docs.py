# SPDX-License-Identifier: Apache-2.0
"""The commands ``docs.*``: the documentation, to be read in other ways."""

from pathlib import Path

from invoke.context import Context

from utvm.cli import task
from utvm.paths import work


@task(
    example="docs.site",
    page="CONTRIBUTING.md",
    in_checkout=True,
    help={"output": "folder to fill (default: build/site)"},
)
def site(_: Context, output: str = "") -> None:
    """Build the documentation as a site that needs no network: guides, commands, error messages, Python."""
    from utvm.cli.docs_site import build

    build(Path(output) if output else work() / "site")


@task(
    example="docs.man",
    page="README.md",
    help={"output": "folder in which man1 is made (default: build/man)"},
)
def man(_: Context, output: str = "") -> None:
    """Write man pages of the program and of each command, of the text that --help prints."""
    from utvm.cli.docs_commands import write_man
    from utvm.cli.output import OUT

    folder = Path(output) if output else work() / "man"
    OUT.print(f"{write_man(folder)} man pages: man -M {folder} utvm")
