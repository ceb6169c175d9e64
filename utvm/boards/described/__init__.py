# SPDX-License-Identifier: Apache-2.0
"""Creates board folders from descriptions of chips.

:func:`find` reads a chip from a CMSIS pack (``.pack``, ``.pdsc``), a target file of probe-rs (``.yaml``) or pyOCD;
:func:`refine` adds its registers (``.svd``); :func:`write` writes a folder. Values that no description gives are
marked ``# check`` there.
"""

import difflib
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import Field

from utvm.base.storage.config import Record, load_yaml
from utvm.base.storage.files import check_folder, check_readable, write_whole
from utvm.base.text import quoting, templates
from utvm.boards import load
from utvm.boards.board import Board
from utvm.boards.described import pdsc, probe_rs, pyocd
from utvm.boards.described.chip import CORES, Chip, ChipMemory, check_words, refine
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


_FAMILIES = Path(__file__).parent / "families.yaml"
_SMALL = ("cortex-m0", "cortex-m0plus", "cortex-m23")
_USUAL_HZ = 8_000_000
# The largest of these that is at most a quarter of RAM.
_STACKS = (8192, 4096, 2048, 1024, 512)
_GUARD = 512
_LEAST_FLASH = 16 * 1024
_PACK = "chip.pack"


@dataclass(frozen=True)
class ProbeKind:
    """A kind of probe: OpenOCD's interface script and transport, and its USB numbers."""

    interface: str
    transport: str
    numbers: tuple[tuple[int, int], ...]


PROBES: Mapping[str, ProbeKind] = {
    "st-link": ProbeKind(
        "stlink-dap.cfg", "dapdirect_swd", ((0x0483, 0x3748), (0x0483, 0x374B), (0x0483, 0x374E), (0x0483, 0x3752))
    ),
    "cmsis-dap": ProbeKind("cmsis-dap.cfg", "swd", ((0x0D28, 0x0204),)),
    "jlink": ProbeKind("jlink.cfg", "swd", ((0x1366, 0x0101), (0x1366, 0x0105), (0x1366, 0x1015))),
}


class Family(Record):
    """A family of chips: pattern of their names, OpenOCD's target script if any, common properties."""

    chips: str
    script: str = Field("", pattern=r"^([\w-]+\.cfg)?$")
    cpu: str | None = None
    reset_hz: int | None = Field(None, gt=0)
    fixed: dict[int, tuple[int, ...]] = Field({})
    in_ram: bool = False
    probes: tuple[str, ...] = tuple(PROBES)


class _Families(Record):
    families: tuple[Family, ...]


def families() -> tuple[Family, ...]:
    """The table of families."""
    return load_yaml(_FAMILIES, _Families).families


def write(chip: Chip, folder: Path, probe: str) -> Board:
    """Write a board's folder for one of :data:`PROBES`, and load it."""
    check_words(chip.name, chip.source, chip.target)
    _check_folder(folder, probe)
    family = next((row for row in families() if re.match(row.chips, chip.name, re.IGNORECASE)), None)
    if not (family and family.script) and not chip.target:
        raise ConfigError(
            f"{chip.name}: OpenOCD's target script for it is unknown",
            "add its family to utvm/boards/described/families.yaml, or use a pack, or pyocd",
        )
    if family and family.cpu and not chip.sure:
        chip = replace(chip, cpu=family.cpu, sure=True)
    if family and probe not in family.probes:
        raise ConfigError(
            f"{chip.name}: OpenOCD's {family.script} takes no {probe}", f"use --probe {' or '.join(family.probes)}"
        )
    files = _contents(chip, folder.name, probe, family)
    check_folder(folder)
    folder.mkdir(parents=True)
    try:
        for name, content in files.items():
            write_whole(folder / name, content)
        return load(str(folder))
    except BaseException as error:
        shutil.rmtree(folder)
        if isinstance(error, ConfigError):
            raise ConfigError(
                f"{chip.name}: its description in {chip.source} is not a valid board: {error.message}"
            ) from error
        raise


def _check_folder(folder: Path, probe: str) -> None:
    if probe not in PROBES:
        raise ConfigError(f"--probe {probe}: is unknown", f"choose one of {', '.join(PROBES)}")
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", folder.name):
        raise ConfigError(
            f"{folder}: its name is the board's: use lower-case letters, digits and -",
            "for instance --output ~/boards/mine",
        )
    if folder.exists():
        raise ConfigError(f"{folder}: already exists", "choose another --output")


def _contents(chip: Chip, name: str, probe: str, family: Family | None) -> dict[str, bytes]:
    pack = chip.pack() if chip.pack else b""
    script = family.script if family else ""
    memory, layout = _lay_out(chip, in_ram=bool(family and family.in_ram))
    core = chip.cpu.partition("-fpv")[0].removesuffix("-dsp").removesuffix("-mve")
    environment = templates.templates_of("utvm.boards.described")
    environment.filters["hex"] = lambda value: f"{value:#010x}"
    environment.filters["quoted"] = quoting.yaml_string
    environment.filters["units"] = lambda sizes: sizes[0] if len(set(sizes)) == 1 else list(sizes)
    text = environment.get_template("board.yaml.j2").render(
        chip=chip,
        name=name,
        memory=memory,
        layout=layout,
        family=family,
        script=script,
        clock_hz=(family and family.reset_hz) or _USUAL_HZ,
        interrupts=chip.interrupts or (32 if chip.cpu in _SMALL else 240),
        probe=probe,
        numbers=PROBES[probe].numbers,
        part=CORES["parts"][core] << 4,
        pack=_PACK if pack else "",
    )
    files = {"board.yaml": text.encode(), **({_PACK: pack} if pack else {})}
    if chip.peripherals:
        files["peripherals.txt"] = chip.peripherals.encode()
    if script:
        config = environment.get_template("openocd.cfg.j2").render(chip=chip, probe=PROBES[probe], script=script)
        files["openocd.cfg"] = config.encode()
    return files


def _lay_out(chip: Chip, *, in_ram: bool) -> tuple[list[ChipMemory], dict[str, str | int]]:
    """Place the stack at the start of the largest RAM, and with ``in_ram`` the code in half of the rest."""
    flash = [piece for piece in chip.memory if piece.kind == "flash" and piece.size >= _LEAST_FLASH]
    ram = sorted((piece for piece in chip.memory if piece.kind == "ram"), key=lambda piece: piece.size)
    if not flash or not ram or ram[-1].size < 4 * _STACKS[-1]:
        raise ConfigError(
            f"{chip.name}: {chip.source} has too little memory for a board",
            f"it needs {_LEAST_FLASH} bytes of flash and {4 * _STACKS[-1]} of RAM; "
            "for a core that starts in RAM, write the folder by hand: docs/porting.md",
        )
    largest = ram[-1]
    code = next((piece for piece in flash if piece.first), flash[0])
    stack_size = next((size for size in _STACKS if 4 * size <= largest.size), _STACKS[-1])
    below = any(piece.end == largest.address for piece in chip.memory)
    reserved = stack_size + (_GUARD if below else 0)
    stack = ChipMemory(f"{largest.name}-stack", largest.address, reserved, "ram")
    rest = ChipMemory(largest.name, largest.address + reserved, largest.size - reserved, "ram")
    memory = [piece for piece in chip.memory if piece is not largest] + [stack]
    if in_ram:
        half = rest.size // 2 & -_GUARD
        code = ChipMemory(f"{largest.name}-code", rest.address, half, "ram")
        rest = ChipMemory(largest.name, code.end, rest.size - half, "ram")
        memory.append(code)
    memory.append(rest)
    names = {"code": code.name, "data": rest.name, "stack": stack.name}
    return sorted(memory, key=lambda piece: piece.address), {**names, "stack_size": stack_size}
