# SPDX-License-Identifier: Apache-2.0
"""Writes a run's report: ``report.json``, ``junit.xml`` and ``index.html`` in a directory of their own.

The directory appears by one rename, and ``latest`` is switched by one rename, so a reader never sees half a
report.
"""

import contextlib
import datetime
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from utvm.errors import ConfigError
from utvm.hil import html, junit
from utvm.hil.results import RunReport
from utvm.hil.schemas import REPORT, check

FILES = ("report.json", "junit.xml", "index.html")


def new_run_id(now: datetime.datetime) -> str:
    """Return a name for a run: sorted by name means sorted by time, and no two runs share one.

    Args:
        now: when the run began, with its time zone.
    """
    utc = now.astimezone(datetime.timezone.utc)
    return f"{utc:%Y%m%dT%H%M%S}.{utc.microsecond // 1000:03d}Z-{secrets.token_hex(2)}"


def logs_beside(root: Path) -> Path:
    """Return the folder with the logs of all runs whose reports are in ``root``."""
    return root.parent / "logs"


def write(report: RunReport, root: Path) -> Path:
    """Write a report below ``root``, point ``root/latest`` at it, and return its directory."""
    content = report.as_json()
    check(content, REPORT)
    texts = {
        "report.json": json.dumps(content, indent=2, ensure_ascii=False) + "\n",
        "junit.xml": junit.render(report),
        "index.html": html.render(report, logs_beside(root) / report.run_id, root / report.run_id),
    }
    return publish(root, report.run_id, lambda draft: write_texts(draft, texts))


def write_texts(directory: Path, texts: Mapping[str, str]) -> None:
    """Write files into a directory; what is no Unicode in them becomes a question mark."""
    for file, text in texts.items():
        (directory / file).write_text(text, encoding="utf-8", errors="replace")


def publish(root: Path, run_id: str, fill: Callable[[Path], None]) -> Path:
    """Have a report appear as ``root/run_id``, whole or not at all, point ``root/latest`` at it, and return it.

    Args:
        fill: fills the empty directory it is handed.
    """
    directory = root / run_id
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".draft-", dir=root, ignore_cleanup_errors=True) as name:
            draft = Path(name) / run_id
            draft.mkdir()
            fill(draft)
            draft.rename(directory)
        _switch_latest(root, run_id)
    except OSError as error:
        raise ConfigError(
            f"{directory}: the report cannot be written: {error.strerror or error}",
            "make the directory writable, or choose another with --report-dir",
        ) from error
    return directory


def _switch_latest(root: Path, run_id: str) -> None:
    latest, draft = root / "latest", root / f".latest-{os.getpid()}"
    if latest.is_dir() and not latest.is_symlink():
        # Unpacked from an archive that follows links, for example.
        shutil.rmtree(latest)
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()
    draft.symlink_to(run_id)
    draft.replace(latest)
