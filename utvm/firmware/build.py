# SPDX-License-Identifier: Apache-2.0
"""From libraries to an ELF file."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy.typing as npt

from utvm import object_file, runtime
from utvm import toolchain as toolchain_room
from utvm.boards import Board
from utvm.boards.accelerators import Sources, fitted
from utvm.cache import Cache, content_key, tree_digest
from utvm.compiler import Library
from utvm.errors import ConfigError, DoesNotFitError, ToolchainError
from utvm.firmware import ram
from utvm.firmware.compiling import roomier
from utvm.firmware.image import GENERATED, Firmware
from utvm.firmware.script import by_address, by_region
from utvm.firmware.sources import contents, generate
from utvm.paths import ROOT
from utvm.runtime import Executor, Pipe
from utvm.toolchain import Toolchain

_LINKER_SCRIPT = "linker.ld"


def build(
    board: Board,
    libraries: Sequence[Library],
    executor: Executor = "host_driven",
    stored: Sequence[npt.ArrayLike] = (),
    pipe: str = "",
    in_ram: bool = False,
    able: frozenset[str] | None = None,
) -> Firmware:
    """Build the firmware that runs some libraries on a board, or the program where the board is a process.

    The result is cached by content: sources, linker script, compiler version and flags.

    Args:
        executor: what drives it: ``host_driven`` by the debug port, ``rpc`` by a client; or nobody,
            ``standing_alone``: it runs its one model on stored inputs and prints what comes out.
        stored: for ``standing_alone``, one array an input, of the shape and element type that the model declares.
        pipe: what RPC goes through, by default the first that the board's CPU can have; of no meaning for the
            other executors. What stands alone reports on the console, or through RTT where there is none.
        in_ram: for ``host_driven``, the image is for RAM alone, at addresses that are chosen here; the debugger
            loads it, and flash stays as it is.
        able: what the board can do, reached as it will be; by default what its file says.

    Raises:
        ConfigError: two libraries have one name, or there is none; the stored inputs are not the model's; the
            board has no such pipe, no debug port, or nothing to report through; an image for RAM would need to
            start without a debugger.
        DoesNotFitError: a section does not fit its region; names section, need and room in bytes.
        ToolchainError: the compiler is missing or refuses a source.
    """
    if in_ram and executor != "host_driven":
        raise ConfigError(
            f"an image with the executor {executor} starts by itself after a reset: it cannot be in RAM alone",
            "only the debug port can load and start one",
        )
    toolchain = Toolchain(board.toolchain)
    able = board.capabilities if able is None else able
    beside = _accelerator_of(board, libraries)
    through = _pipe_of(board, able, pipe) if executor == "rpc" else None
    if executor == "standing_alone" and board.memory and "console" not in able:
        through = _pipe_of(board, able, "rtt")
    written = generate(libraries, executor, stored, bool(board.memory))
    if board.memory:
        image = _image_of_chip(board, board.architecture, through, executor, written, in_ram)
    else:
        image = _image_of_process(board, through, executor, written)
    image = replace(
        image,
        generated={**image.generated, **beside.generated},
        kept=(*image.kept, *beside.files),
        include=(*image.include, *beside.include),
        defines=(*image.defines, *beside.defines),
        contents=contents(libraries),
    )
    entry = Cache("firmware").fetch(
        _key(toolchain, board.cpu, image), lambda work: _link(board, toolchain, image, work)
    )
    return Firmware(board, entry / image.name, tuple(libraries), through, in_ram)


def _accelerator_of(board: Board, libraries: Sequence[Library]) -> Sources:
    """Return the C of an accelerator's driver, and of its model in a process; nothing where none is used."""
    used = [library for library in libraries if library.accelerator]
    if not used:
        return Sources()
    has = fitted(board) if board.accelerator else None
    for library in used:
        if has is None or library.accelerator != has.identity:
            raise ConfigError(
                f"{library.name} was compiled for the accelerator {library.accelerator}, and {board.spoken} has "
                f"{has.identity if has else 'none'}",
                "compile it for this board",
            )
    assert has
    behind = has.registers if board.memory else has.model
    if behind is None:
        raise ConfigError(
            f"the accelerator {has.identity} of {board.spoken} cannot be driven: where are its registers?",
            "say it in its board.yaml, below accelerator; registers: 0x43C00000, for instance",
        )
    parts = (has.driver, behind)
    return Sources(
        tuple(file for part in parts for file in part.files),
        tuple(folder for part in parts for folder in part.include),
        {name: text for part in parts for name, text in part.generated.items()},
        tuple(define for part in parts for define in part.defines),
    )


def _pipe_of(board: Board, able: frozenset[str], name: str) -> Pipe:
    known = [
        pipe
        for pipe in runtime.pipes(board.architecture)
        if pipe not in runtime.PIPE_NEEDS or runtime.PIPE_NEEDS[pipe] in able
    ]
    for pipe in known:
        if name in (pipe, ""):
            return pipe
    raise ConfigError(f"{board.name} has no transport {name!r}", f"it has: {', '.join(known)}")


@dataclass(frozen=True)
class _Image:
    """What is compiled: its file's name, files that are written for it, files of the project, and how.

    ``memory`` is what the layout is chosen from, where it is chosen when the image is linked; ``contents``, what
    constants of the written files hold that these files do not say.
    """

    name: str
    generated: Mapping[str, str]
    kept: tuple[Path, ...]
    include: tuple[Path, ...]
    defines: tuple[str, ...]
    memory: str = ""
    contents: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)

    def write(self, work: Path) -> None:
        for name, text in self.generated.items():
            (work / name).write_text(text, encoding="utf-8")

    def c_files(self, work: Path) -> list[Path]:
        return [*self.kept, *(work / name for name in sorted(self.generated) if name.endswith(".c"))]


def _image_of_chip(
    board: Board,
    architecture: str,
    pipe: Pipe | None,
    executor: Executor,
    generated: dict[str, str],
    in_ram: bool,
) -> _Image:
    """Add what a chip needs: a linker script, the board's port, its interrupts and its console."""
    return _Image(
        "firmware.elf",
        generated | {_LINKER_SCRIPT: by_address(board, {}) if in_ram else by_region(board)},
        (*runtime.sources(architecture, executor, pipe), board.port_source),
        runtime.include(architecture, executor, pipe),
        (
            f"UTVM_INTERRUPTS={board.interrupts}",
            *((f"UTVM_CONSOLE_BAUD={board.line.baud}u",) if board.line else ()),
            # Without the console's interrupts, nothing but its own work counts in a run.
            f"UTVM_CONSOLE_IRQS={','.join(map(str, board.console.irqs)) if pipe == 'console' else -1}",
            f"UTVM_MEMORY={','.join(f'{{{region.address:#x}u,{region.size}u}}' for region in board.memory)}",
            *_counter_of(board),
            *(board.port.defines if board.port else ()),
            *(("UTVM_STACK_GUARD=1",) if board.guards_stack else ()),
            *runtime.defines(executor, pipe),
            *_defines(board),
        ),
        repr((board.memory, board.layout)) if in_ram else "",
    )


def _image_of_process(board: Board, pipe: Pipe | None, executor: Executor, generated: dict[str, str]) -> _Image:
    if executor == "host_driven":
        raise ConfigError(f"{board.name} has no debug port for the host to drive it", "use RPC")
    return _Image(
        "board",
        generated,
        runtime.sources(board.architecture, executor, pipe),
        runtime.include(board.architecture, executor),
        (*runtime.defines(executor), *_defines(board)),
    )


def _counter_of(board: Board) -> tuple[str, ...]:
    """Return what its C is told of who counts, and of how many counts a tick is."""
    ratio = board.counter_ratio
    if board.cycle_counter == "port":
        scale = (
            (f"UTVM_COUNTS={ratio.numerator}u", f"UTVM_COUNTER_TICKS={ratio.denominator}u") if ratio != 1 else ()
        )
        return ("UTVM_PORT_COUNTS=1", *scale)
    if board.cycle_counter == "systick":
        return ("UTVM_SYSTICK_COUNTS=1", *((f"UTVM_COUNT_SCALE={round(ratio * 2**32)}u",) if ratio != 1 else ()))
    return ()


def _defines(board: Board) -> tuple[str, ...]:
    return (f'UTVM_BOARD_NAME="{board.name}"', f"UTVM_CLOCK_HZ={board.clock_hz}u", "UTVM_STEPS=1")


def _key(toolchain: Toolchain, cpu: str, image: _Image) -> str:
    headers = sorted(path for folder in image.include for path in folder.glob("*.h"))
    return content_key(
        tree_digest(Path(__file__).parent),
        Path(toolchain_room.__file__).read_text(),
        Path(object_file.__file__).read_text(),
        toolchain.version,
        toolchain.path.read_text(),
        cpu,
        *image.defines,
        image.memory,
        *(text for item in sorted(image.generated.items()) for text in item),
        *(_digest(data) for _, large in sorted(image.contents.items()) for data in large.values()),
        *(path.read_text() for path in (*image.kept, *headers)),
    )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _link(board: Board, toolchain: Toolchain, image: _Image, work: Path) -> None:
    """Write the generated files into a folder and link everything there."""
    image.write(work)
    script = work / _LINKER_SCRIPT if _LINKER_SCRIPT in image.generated else None
    elf, map_file = work / image.name, work / f"{image.name}.map"
    with toolchain.compiled(
        work,
        image.c_files(work),
        small=image.kept,
        contents={work / file: large for file, large in image.contents.items()},
        cpu=board.cpu,
        include=[*image.include, work],
        defines=image.defines,
        path_map=source_folders(board, work),
    ) as objects:
        if image.memory and script:
            ram.link(objects, board, elf, script, map_file)
            return
        try:
            objects.link(elf, linker_script=script, map_file=map_file)
        except ToolchainError as error:
            raise _too_big(board, error.message) or error from None


def source_folders(board: Board, generated: Path) -> list[tuple[Path, str]]:
    """Return the folders that an image's sources are in, each with what debug information calls it.

    Args:
        generated: the folder of the image's own files, in which its ELF file is.
    """
    return [(ROOT, "/utvm"), (board.directory, f"/utvm/boards/{board.name}"), (generated, GENERATED)]


def _too_big(board: Board, said: str) -> DoesNotFitError | None:
    """Turn the linker's words about an overflow into an error that names section, need and room."""
    overflow = re.search(r"region [`']([\w-]+)' overflowed by (\d+) bytes", said)
    if not overflow or not board.memory:
        return None
    region = board.region(overflow[1])
    section = re.search(r"section [`'](\.[\w.]+)' will not fit in region [`']" + re.escape(region.name), said)
    name = section[1] if section else "firmware"
    need = region.size + int(overflow[2])
    return DoesNotFitError(
        f"section {name} does not fit: region {region.name} of {board.spoken} has {region.size} bytes, "
        f"the firmware needs {need} ({overflow[2]} too many)",
        roomier(board, region),
    )
