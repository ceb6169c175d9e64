# SPDX-License-Identifier: Apache-2.0
"""The common design of all pages: run reports, nightly reports, compile reports, profiles.

A page is one self-contained file. Its content security policy allows only its own script, by hash, and no
connection. Templates extend ``page.html.j2`` and use macros of ``parts.html.j2``.
"""

import base64
import functools
import hashlib
from collections.abc import Callable
from importlib import resources

import jinja2
from markupsafe import Markup

from utvm.base.text.templates import templates_of

_PACKAGE = "utvm.pages"
_CHARACTER_WIDTH = 6.6


@functools.cache
def pages_of(package: str) -> jinja2.Environment:
    """Return the templates of a package's pages, with filters that format figures."""
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
        "shortened": _shorten,
    }
    environment.filters.update(filters)
    script = (resources.files(_PACKAGE) / "templates" / "page.js").read_text(encoding="utf-8")
    environment.globals |= script_values(script)
    return environment


def script_values(script: str) -> dict[str, str]:
    """Return a page's script, and its hash for the content security policy, as values of ``page.html.j2``."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {"page_script": Markup(script), "page_script_hash": f"sha256-{digest}"}


def layers_script() -> dict[str, str]:
    """Return the script of ``layers.html.j2``, as :func:`script_values` does."""
    return script_values((resources.files(_PACKAGE) / "templates" / "layers.js").read_text(encoding="utf-8"))


def frame(page: str) -> str:
    """Return a page as a frame for a notebook, whose styles it neither takes nor changes."""
    return Markup('<iframe srcdoc="{}" title="utvm" width="100%" height="640" style="border: 0"></iframe>').format(page)


def _shorten(text: str, most: int) -> str:
    """Cut the middle of a long text; the end of a trace matters most."""
    if len(text) <= most:
        return text
    head = most // 3
    gap = f"\n[… {len(text) - most:,} characters omitted; see junit.xml …]\n"
    return text[:head] + gap + text[head - most :]


def format_bytes(size: int) -> str:
    return f"{size // 1024:,} KiB" if size and size % 1024 == 0 else f"{size:,} B"


def format_duration(duration: float) -> str:
    """Format seconds as minutes and seconds, ``1:07``, or with hours, ``1:01:07``."""
    minutes, seconds = divmod(round(duration), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def readable_time(moment: str) -> str:
    """Format a UTC time: ``2026-11-20T13:45:13Z`` becomes ``2026-11-20 13:45:13 UTC``."""
    return moment.replace("T", " ").replace("Z", " UTC")


def label_in(width: float, label: str) -> str:
    """Shorten a label of font size 12 to a width in a picture; empty if not even its beginning fits."""
    length = int((width - 10) / _CHARACTER_WIDTH)
    return label if len(label) <= length else label[: length - 1] + "…" if length > 3 else ""
