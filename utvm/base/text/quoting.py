# SPDX-License-Identifier: Apache-2.0
"""Escapes text from outside, with one function per output language.

Serial numbers, names of tensors and tests, failure messages, console output and paths are untrusted. Code that
writes one of them into a language calls that language's function; no other code escapes anything:

    terminal, log              printable, printable_lines
    UTF-8 (SQLite, files)      encodable, encodable_tree
    Tcl (OpenOCD)              tcl
    GDB's commands             gdb
    shell                      shlex.quote, shlex.join
    ssh_config                 ssh_config
    C                          c_string, comment; identifiers: utvm.compiler.names
    linker scripts             linker_name
    HTML, SVG                  jinja2's autoescape: utvm.base.text.templates.templates_of(html=True)
    XML                        legal_xml, and ElementTree for the mark-up
    Markdown                   markdown_cell
    YAML, JSON                 yaml_string; json.dumps, yaml.safe_dump
    Prometheus, GitHub         prometheus_label, workflow_message, workflow_property
    archive members            archive_member

SQL takes values as parameters. Vagrant's Ruby reads JSON. udev rules hold only numbers and names with plain
patterns. Text that a language cannot represent, such as NUL in Tcl, is a ConfigError.
"""

import re
from collections.abc import Mapping
from html import escape
from typing import Any

import yaml

from utvm.errors import ConfigError

_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN_C = frozenset(range(0x20, 0x7F)) - frozenset(b'"\\?')
# XML 1.0, section 2.2: characters that a document may not contain, even escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def printable(text: str) -> str:
    """Return text on one line, with unprintable characters as escapes."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def printable_lines(text: str) -> str:
    """Return text of several lines, each as by :func:`printable`; tabs stay."""
    if text.isprintable():
        return text
    return "".join(letter if letter in "\n\t" else printable(letter) for letter in text)


def encodable(text: str) -> str:
    """Return text that UTF-8 can hold: a lone surrogate, e.g. a byte of a path, becomes ``\\udc80``."""
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def encodable_tree(content: Any) -> Any:
    """Apply :func:`encodable` to all texts of a JSON value, keys included."""
    if isinstance(content, str):
        return encodable(content)
    if isinstance(content, Mapping):
        return {encodable_tree(key): encodable_tree(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [encodable_tree(value) for value in content]
    return content


def tcl(text: str) -> str:
    """Return a Tcl word with this value; unless empty, it is also valid between double quotes."""
    _refuse("Tcl", text, "\0")
    letters = (
        letter
        if letter.isalnum() or letter in "_-./:,+=@%" or ord(letter) > 0x9F
        else f"\\u{ord(letter):04x}"
        if letter < " " or letter > "~"
        else f"\\{letter}"
        for letter in text
    )
    return "".join(letters) or "{}"


def gdb(text: str) -> str:
    """Return an argument of a GDB command."""
    _refuse("GDB", text, "\0\n\r")
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def ssh_config(text: str) -> str:
    """Return a file's path for a line of ssh_config."""
    _refuse("ssh_config", text, "\0\n\r")
    return '"' + re.sub(r'(["\\])', r"\\\1", text.replace("%", "%%")) + '"'


def _refuse(language: str, text: str, letters: str) -> None:
    bad = next((letter for letter in text if letter in letters or "\ud800" <= letter < "\udc80"), "")
    if bad:
        raise ConfigError(
            f"'{printable(text)}' cannot be given to {language}: it contains {printable(bad)}", "rename it"
        )


def c_string(text: str) -> str:
    """Return a C string literal, with quotes, of the UTF-8 of a text."""
    # Octal escapes end after three digits; a question mark may be half a trigraph.
    letters = (chr(byte) if byte in _PLAIN_C else f"\\{byte:03o}" for byte in encodable(text).encode())
    return f'"{"".join(letters)}"'


def comment(text: str) -> str:
    """Return ASCII text that is safe in a C comment and in a Markdown table."""
    return re.sub(r"[^ -~]|[*/\\?|`<>]", "_", text)


def linker_name(text: str) -> str:
    """Return a name for a GNU linker script. A quote, which cannot be escaped there, becomes ``_``."""
    return '"' + re.sub(r'[^ -~]|["\\*?\[\]]', "_", text) + '"'


def legal_xml(text: str) -> str:
    """Return text without the characters that XML cannot hold, even escaped."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def markdown_cell(text: str) -> str:
    """Return text that a Markdown table cell shows literally."""
    plain = escape(printable(" ".join(text.split())), quote=False)
    # Markdown ignores an underscore within a word.
    signs = r"[\\`*\[\]|#{}~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"
    return re.sub(signs, lambda match: f"&#{ord(match[0])};", plain)


def yaml_string(text: str) -> str:
    """Return a YAML string in double quotes, on one line."""
    return str(yaml.safe_dump(encodable(text), default_style='"', width=2**31, allow_unicode=True)).rstrip("\n")


def prometheus_label(text: str) -> str:
    """Return a label value in Prometheus's text format, without quotes."""
    return encodable(text).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def workflow_message(text: str) -> str:
    """Return the message of a GitHub workflow command."""
    return printable_lines(text).replace("%", "%25").replace("\n", "%0A")


def workflow_property(text: str) -> str:
    """Return a property of a GitHub workflow command."""
    return workflow_message(text).replace(":", "%3A").replace(",", "%2C")


def archive_member(name: str) -> str:
    """Return the path of an archive member for a name, always inside the folder it is unpacked into.

    Different names have different paths. Slashes stay, as TensorFlow's names are full of them.
    """
    coded = "".join(_escape(letter) if letter in "%\\:" or not letter.isprintable() else letter for letter in name)
    parts = coded.split("/")
    # Empty parts, "." and ".." would leave the folder or collide with another name.
    return "/".join(part.replace(".", "%2E") if part in (".", "..") else part or "%" for part in parts)


def _escape(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "surrogatepass"))
