# SPDX-License-Identifier: Apache-2.0
"""The commands ``docs.*``: they write what is made of data. A test compares each."""

from pathlib import Path

from invoke.context import Context

from utvm.cli import task
from utvm.paths import work


@task(example="docs.boards", page="docs/porting.md", in_checkout=True)
def boards(_: Context) -> None:
    """Write docs/boards.md from the boards' files and from what benchmarks/boards.py measured."""
    from utvm.cli.docs_boards import write_page

    write_page()


@task(example="docs.schemas", page="CONTRIBUTING.md", in_checkout=True)
def schemas(_: Context) -> None:
    """Write the figures of utvm/hil/figures.py into docs/report.schema.json and docs/nightly.schema.json."""
    from utvm.hil.schemas import write_schemas

    write_schemas()


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
