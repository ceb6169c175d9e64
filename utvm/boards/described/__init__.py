# SPDX-License-Identifier: Apache-2.0
"""Creates board folders from descriptions of chips.

:func:`find` reads a chip from a CMSIS pack (``.pack``, ``.pdsc``), a target file of probe-rs (``.yaml``) or pyOCD;
:func:`refine` adds its registers (``.svd``); :func:`write` writes a folder. Values that no description gives are
marked ``# check`` there.
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
"""In place of a file: the targets built into pyOCD."""
_MOST_NAMES = 12


def names(source: Path) -> tuple[str, ...]:
    """Names of the chips in a description."""
    return tuple(read(source))


def find(source: Path, chip: str) -> Chip:
    """Read a chip from a description; its name is not case-sensitive."""
    described = read(source)
    for name, read_chip in described.items():
        if name.lower() == chip.lower():
            return read_chip()
    near = sorted(described, key=lambda name: -_similarity(name.lower(), chip.lower()))
    more = f" and {len(near) - _MOST_NAMES} more" if len(near) > _MOST_NAMES else ""
    raise ConfigError(
        f"{source}: describes no chip {chip!r}" if chip else "--chip is missing",
        f"it describes {', '.join(near[:_MOST_NAMES])}{more}",
    )


def _similarity(name: str, other: str) -> int:
    return difflib.SequenceMatcher(None, name, other, autojunk=False).find_longest_match().size


def read(source: Path) -> Mapping[str, Callable[[], Chip]]:
    """A reader for each chip in a description, by name."""
    if source == PYOCD:
        return pyocd.read()
    reader = _READERS.get(source.suffix)
    if reader is None:
        raise ConfigError(f"{source}: is not a description of chips", f"give {', '.join(_READERS)}; or pyocd")
    check_readable(source, "check that the file exists and that you may read it")
    return reader(source)
