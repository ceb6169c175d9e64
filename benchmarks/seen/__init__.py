# SPDX-License-Identifier: Apache-2.0
"""The benchmarks' last figures: each benchmark writes a JSON file, and benchmarks/README.md is generated from them.

``.venv/bin/python -m benchmarks.seen`` writes the page; a test compares. The page's template contains no figures.
"""

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "README.md"


def keep(name: str, figures: Mapping[str, Any]) -> None:
    """Write a benchmark's new figures."""
    content = {"date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}", "figures": figures}
    (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def page() -> str:
    """Return the text of benchmarks/README.md."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["n"] = lambda value: f"{value:,}"
    environment.filters["million"] = lambda value: f"{value / 1e6:.2f} M"
    results = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")}
    return environment.get_template("README.md.j2").render(
        **{name: result["figures"] for name, result in results.items()},
        dates={name: result["date"] for name, result in results.items()},
    )


def write_page() -> None:
    """Write benchmarks/README.md."""
    PAGE.write_text(page(), encoding="utf-8")
