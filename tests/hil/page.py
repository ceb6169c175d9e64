# SPDX-License-Identifier: Apache-2.0
"""Parses a page of a report like a browser."""

from html.parser import HTMLParser
from pathlib import Path

from utvm import pages


class Page(HTMLParser):
    """The tags, text, links and scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.links: list[str] = []
        self.scripts: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.links += [value or "" for name, value in attrs if name == "href"]
        if tag not in ("meta", "br", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            self.scripts += [data] * (self.open[-1] == "script")
        else:
            self.text += data

    def is_self_contained(self) -> bool:
        """True if it has only the pages' own script, and loads nothing."""
        script = Path(pages.__file__).parent.joinpath("templates", "page.js").read_text()
        found = {name for name, _ in self.attributes} & {"src", "onerror", "onclick", "onload"}
        return self.scripts == [script] and not found and not {"link", "img", "iframe"} & set(self.tags)
