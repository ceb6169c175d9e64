# SPDX-License-Identifier: Apache-2.0
"""Chips as others describe them, and board folders made of that: a file's kind is told from its name.

:func:`find` reads a chip out of a CMSIS pack (``.pack``, ``.pdsc``) or a target file of probe-rs (``.yaml``);
:func:`refine` adds what its registers (``.svd``) say; :func:`write` makes a folder of it. What no description says
is in the folder with a remark, ``# check``.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from utvm.boards.described import pdsc, probe_rs
from utvm.boards.described.chip import Chip
from utvm.boards.described.svd import refine
from utvm.boards.described.write import PROBES, write
from utvm.errors import ConfigError
from utvm.files import check_readable

__all__ = ["PROBES", "Chip", "find", "names", "refine", "write"]

_READERS: Mapping[str, Callable[[Path], Mapping[str, Callable[[], Chip]]]] = {
    ".pack": pdsc.read_pack,
    ".pdsc": pdsc.read,
    ".yaml": probe_rs.read,
    ".yml": probe_rs.read,
}
_MOST_SAID = 12


def names(source: Path) -> tuple[str, ...]:
    """Return the chips that a file describes.

    Raises:
        ConfigError: it cannot be read, or is no description of chips.
    """
    return tuple(_described(source))


def find(source: Path, chip: str) -> Chip:
    """Read a chip out of a file; letters may be large or small.

    Raises:
        ConfigError: as :func:`names`; or it is not among them, or is described in part.
    """
    described = _described(source)
    for name, read in described.items():
        if name.lower() == chip.lower():
            return read()
    near = [name for name in described if name.lower().startswith(chip.lower()[:7])] or list(described)
    more = f" and {len(near) - _MOST_SAID} more" if len(near) > _MOST_SAID else ""
    raise ConfigError(
        f"{source}: describes no chip {chip!r}" if chip else "--chip is missing",
        f"it describes: {', '.join(near[:_MOST_SAID])}{more}",
    )


def _described(source: Path) -> Mapping[str, Callable[[], Chip]]:
    reader = _READERS.get(source.suffix)
    if reader is None:
        raise ConfigError(f"{source}: is no description of chips", f"known are: {', '.join(_READERS)}")
    check_readable(source, "name a file on the disk: is it there, and yours to read?")
    return reader(source)
