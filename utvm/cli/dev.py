# SPDX-License-Identifier: Apache-2.0
"""The commands ``dev.*``: they write those files of the project that are made of data. A test compares each."""

from invoke.context import Context

from utvm.cli import task


@task(example="dev.boards", page="docs/porting.md", in_checkout=True)
def boards(_: Context) -> None:
    """Write docs/boards.md from the boards' files and from what benchmarks/boards.py measured."""
    from utvm.cli.dev_boards import write_page

    write_page()


@task(example="dev.schemas", page="CONTRIBUTING.md", in_checkout=True)
def schemas(_: Context) -> None:
    """Write the figures of utvm/hil/figures.py into docs/report.schema.json and docs/nightly.schema.json."""
    from utvm.hil.schemas import write_schemas

    write_schemas()
