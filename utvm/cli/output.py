# SPDX-License-Identifier: Apache-2.0
"""Where the command line prints: one rich console, plain when the output is not a terminal."""

import json
import os
import sys
from pathlib import Path

from rich.text import Text

from utvm.base.log import log_folder
from utvm.base.storage.files import check_writable, write_whole
from utvm.base.text.quoting import printable
from utvm.base.text.terminal import Terminal
from utvm.cli.choices import JsonChoice
from utvm.paths import work

OUT = Terminal(markup=False, soft_wrap=True)
"""Words are printed as they are: style is given by :class:`rich.text.Text`, never by words."""


_PRINTED = "-"


def check_json(asked: JsonChoice) -> None:
    """Refuse a file that cannot be written; where JSON is printed, words go to standard error from now on."""
    if asked.json == _PRINTED:
        OUT.stderr = True
    else:
        check_writable(asked.json)


def write_json(asked: JsonChoice, content: object) -> bool:
    """Write what was found out, if that is wanted.

    Returns:
        whether it was printed: then there is nothing to show to a reader.
    """
    if not asked.json:
        return False
    text = json.dumps(content, indent=2) + "\n"
    if asked.json == _PRINTED:
        sys.stdout.write(text)
        return True
    write_whole(Path(asked.json), text)
    return False


def logs_of(command: str) -> Path:
    """Return a folder for the logs of what this process starts."""
    return log_folder(work() / "logs" / f"{command}-{os.getpid()}")


def tell(what: str) -> None:
    """Print what is being done before a command's own work: one line a step, so that a log has it too."""
    OUT.print(Text(printable(what), style="dim"))
