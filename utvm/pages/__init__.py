# SPDX-License-Identifier: Apache-2.0
"""The one design of all pages: reports, a night's report, compile reports, profiles.

A page is one file that needs nothing from outside: style, pictures and script are in it, so that it can be mailed
and kept. It says so to the browser, too: a policy in its head allows the page's own script, told by its hash, and
no connection at all. A room's templates extend ``page.html.j2`` and take pieces from ``parts.html.j2``.
"""

import base64
import hashlib
from collections.abc import Callable
from importlib import resources

import jinja2
from markupsafe import Markup

from utvm.base.text.templates import templates_of

_PACKAGE = "utvm.pages"
_CHARACTER = 6.6  # Width of one in a label.


def pages_of(package: str) -> jinja2.Environment:
    """Return the templates of a package's pages, with what they use to write figures.

    Args:
        package: its name, with dots.
    """
    environment = templates_of(package, html=True)
    assert environment.loader is not None
    environment.loader = jinja2.ChoiceLoader([environment.loader, jinja2.PackageLoader(_PACKAGE)])
    filters: dict[str, Callable[..., str]] = {
        "hex": lambda value: f"{value:#010x}",
        "bytes": format_bytes,
        "thousands": lambda value: f"{value:,}",
        "percent": lambda value: f"{100 * value:.2f} %",
        "seconds": lambda value: f"{value:.2f} s",
        "clock": format_duration,
        "at": lambda value: f"{value:.2f}",
        "moment": readable_time,
    }
    environment.filters.update(filters)
    script = (resources.files(_PACKAGE) / "templates" / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals |= {"page_script": Markup(script), "page_script_hash": f"sha256-{digest}"}
    return environment


def format_bytes(size: int) -> str:
    """Return a size for a reader: ``64 KiB`` where that is exact, ``1,234 B`` otherwise."""
    return f"{size // 1024:,} KiB" if size and size % 1024 == 0 else f"{size:,} B"


def format_duration(duration: float) -> str:
    """Return a duration for a reader: minutes and seconds, ``1:07``, with hours in front where there are any."""
    minutes, seconds = divmod(round(duration), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def readable_time(moment: str) -> str:
    """Return a moment in UTC for a reader: of ``2026-11-20T13:45:13Z`` it is ``2026-11-20 13:45:13 UTC``."""
    return moment.replace("T", " ").replace("Z", " UTC")


def label_in(width: float, label: str) -> str:
    """Return as much of a label as there is room for in a picture: all of it, its beginning and ``…``, or nothing.

    Args:
        width: the room, in the picture's units.
        label: what is written, at 12 units.
    """
    room = int((width - 10) / _CHARACTER)
    return label if len(label) <= room else label[: room - 1] + "…" if room > 3 else ""
