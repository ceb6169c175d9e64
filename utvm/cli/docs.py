# SPDX-License-Identifier: Apache-2.0
"""The command ``docs.site``."""

from pathlib import Path

from invoke.context import Context

from utvm.cli import task
from utvm.paths import work


@task(
    example="docs.site",
    page="CONTRIBUTING.md",
    in_checkout=True,
    help={
        "output": "folder to fill (default: build/site)",
        "pages": "only rewrite the generated files: docs/boards.md and the JSON schemas of reports",
    },
)
def site(_: Context, output: str = "", pages: bool = False) -> None:
    """Build the documentation as a web site that works offline: guides, commands, error messages, Python API."""
    if pages:
        from benchmarks.boards_page import write_page
        from utvm.hil.schemas import write_schemas

        write_page()
        write_schemas()
        return
    from docs.site.build import build

    build(Path(output) if output else work() / "site")
