# SPDX-License-Identifier: Apache-2.0
"""The message on a night whose verdict is not that of the night before: the body of an e-mail or a webhook."""

import contextlib
import json
from pathlib import Path

from utvm.base.storage.files import write_whole
from utvm.errors import ConfigError
from utvm.hil.nightly.display import last_line
from utvm.hil.nightly.results import NightlyReport
from utvm.hil.results import Verdict, in_brief


def verdict_before(root: Path) -> str:
    """Return the verdict of the newest night that has a report; passed where there is none.

    Args:
        root: the folder of all nightly reports.
    """
    for path in sorted(root.glob("[0-9]*/nightly.json"), reverse=True):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return str(json.loads(path.read_text(encoding="utf-8"))["verdict"])
    return Verdict.PASSED.value


def write_message(path: Path, report: NightlyReport, before: str) -> None:
    """Write the message, a subject in its first line; where the verdict is as before, see that there is none."""
    now = report.verdict.value
    if now == before:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be removed: {error.strerror}") from error
        return
    lines = [f"nightly run {report.run_id}: {now}, {before} before", "", last_line(report)]
    lines += [
        f"{result.spoken}: {result.verdict.value}; {in_brief(result.reason)}".removesuffix("; ")
        for result in report.boards
        if result.verdict.exit_code
    ]
    write_whole(path, "".join(f"{line}\n" for line in lines).encode())
