# SPDX-License-Identifier: Apache-2.0
"""The commands ``dev.*``: they write the project's generated files; tests compare those made of data."""

from invoke.context import Context

from utvm.cli import task
from utvm.paths import ROOT


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


@task(example="dev.recording", page="CONTRIBUTING.md", in_checkout=True)
def recording(_: Context) -> None:
    """Run the suites on the virtual stm32f746 and draw the terminal for the README."""
    from utvm.cli.dev_recording import record

    record(["hil", "--board", "stm32f746", "--virtual"], ROOT / "docs" / "img" / "hil.svg")
