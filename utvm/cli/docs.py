# SPDX-License-Identifier: Apache-2.0
"""Function of ``commands/docs.yaml``."""

from pathlib import Path

from utvm.paths import work


def site(output: str, pages: bool) -> None:
    if pages:
        from benchmarks.boards_page import write_page
        from utvm.hil.schemas import write_schemas

        write_page()
        write_schemas()
        return
    from docs.site.build import build

    build(Path(output) if output else work() / "site")
