# SPDX-License-Identifier: Apache-2.0
"""Chips as others describe them, and board folders made of that: a file's kind is told from its name.

:func:`find` reads a chip out of a CMSIS pack (``.pack``, ``.pdsc``), a target file of probe-rs (``.yaml``) or
pyOCD; :func:`refine` adds what its registers (``.svd``) say; :func:`write` makes a folder of it. What no
description says is in the folder with a remark, ``# check``.
"""

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path

from utvm.base.storage.files import check_readable
from utvm.boards.described import pdsc, probe_rs, pyocd
from utvm.boards.described.chip import Chip, refine
from utvm.boards.described.write import PROBES, write
from utvm.errors import ConfigError

__all__ = ["PROBES", "Chip", "find", "names", "read", "refine", "write"]

_READERS: Mapping[str, Callable[[Path], Mapping[str, Callable[[], Chip]]]] = {
    ".pack": pdsc.read_pack,
    ".pdsc": pdsc.read,
    ".yaml": probe_rs.read,
    ".yml": probe_rs.read,
}
PYOCD = Path("pyocd")
"""In place of a file: what is built into pyOCD."""
_MOST_SAID = 12


def names(source: Path) -> tuple[str, ...]:
    """Return the chips that a file describes."""
    return tuple(read(source))


def find(source: Path, chip: str) -> Chip:
    """Read a chip out of a file; letters may be large or small."""
    described = read(source)
    for name, make in described.items():
        if name.lower() == chip.lower():
            return make()
    near = sorted(described, key=lambda name: -_alike(name.lower(), chip.lower()))
    more = f" and {len(near) - _MOST_SAID} more" if len(near) > _MOST_SAID else ""
    raise ConfigError(
        f"{source}: describes no chip {chip!r}" if chip else "--chip is missing",
        f"it describes {', '.join(near[:_MOST_SAID])}{more}",
    )


def _alike(name: str, other: str) -> int:
    return difflib.SequenceMatcher(None, name, other, autojunk=False).find_longest_match().size


def read(source: Path) -> Mapping[str, Callable[[], Chip]]:
    """Return what reads each chip that a file describes, by its name."""
    if source == PYOCD:
        return pyocd.read()
    reader = _READERS.get(source.suffix)
    if reader is None:
        raise ConfigError(
            f"{source}: is no description of chips", f"known are: {', '.join(_READERS)}; and the word pyocd"
        )
    check_readable(source, "name a file on the disk: is it there, and yours to read?")
    return reader(source)
