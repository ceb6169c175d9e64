# SPDX-License-Identifier: Apache-2.0
"""Names and words from strangers, in a form that may be written: of tensors, nodes, boards, files, devices.

Who chose them is not known, so nothing in them may mean anything where they are written: not to a terminal, not to
the reader of a log, not to a C compiler, not to whoever unpacks an archive. HTML is escaped by its templates (see
:func:`utvm.base.text.templates.templates_of`), and C's own names are made by :mod:`utvm.compiler.names`.
"""

import re


def printable(text: str) -> str:
    """Return text on one line: control characters, and whatever else cannot be printed, as escapes."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def printable_lines(text: str) -> str:
    """Return text of several lines, each as :func:`printable` writes it; tabs stay."""
    if text.isprintable():
        return text
    return "".join(letter if letter in "\n\t" else printable(letter) for letter in text)


def comment(text: str) -> str:
    """Return text that stays what it is in a comment of C and in a table of Markdown, in ASCII."""
    return re.sub(r"[^ -~]|[*/\\?|`<>]", "_", text)


def member(name: str) -> str:
    """Return the path of a member of an archive for a name: one that lies in the folder it is unpacked into.

    Different names have different paths. Slashes stay, as TensorFlow's names are full of them.
    """
    coded = "".join(_coded(letter) if letter in "%\\:" or not letter.isprintable() else letter for letter in name)
    parts = coded.split("/")
    # What is empty, here or above would lead out of the folder, or to one that has a name already.
    return "/".join(part.replace(".", "%2E") if part in (".", "..") else part or "%" for part in parts)


def _coded(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "surrogatepass"))
