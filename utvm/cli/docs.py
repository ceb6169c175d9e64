"""The commands ``docs.*``; the page is made in ``docs_boards``."""

from invoke.context import Context

from utvm.cli import task


@task()
def boards(_: Context) -> None:
    """Write docs/boards.md from the boards' files and from what benchmarks/boards.py measured."""
    from utvm.cli.docs_boards import write_page

    write_page()
