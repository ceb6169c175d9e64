# SPDX-License-Identifier: Apache-2.0
"""The commands ``docs.*``: they write what is made of data. A test compares each."""

from invoke.context import Context

from utvm.cli import task


@task(in_checkout=True)
def boards(_: Context) -> None:
    """Write docs/boards.md from the boards' files and from what benchmarks/boards.py measured."""
    from utvm.cli.docs_boards import write_page

    write_page()


@task(in_checkout=True)
def schemas(_: Context) -> None:
    """Write the figures of utvm/hil/figures.py into docs/report.schema.json and docs/nightly.schema.json."""
    from utvm.hil.schemas import write_schemas

    write_schemas()
