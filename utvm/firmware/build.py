# SPDX-License-Identifier: Apache-2.0
"""From libraries to an ELF file."""

import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy.typing as npt

from utvm import runtime
from utvm.base.storage.cache import Cache, content_key, tree_digest
from utvm.boards import Board, MemoryRegion, alternatives
from utvm.boards.accelerators import Sources, accelerator_of, assistant, identify
from utvm.compiler import Library, Memory, Model, Target, compile_model
from utvm.compiler.accelerator import Wish
from utvm.compiler.storage import Storage
from utvm.errors import ConfigError, DoesNotFitError, ToolchainError
from utvm.firmware import ram
from utvm.firmware.image import GENERATED, Firmware
from utvm.firmware.module import NOTHING, Module, Upload, foreign_flags, link_error
from utvm.firmware.sources import by_address, by_region, contents, generate
from utvm.paths import ROOT
from utvm.runtime import Executor, Pipe
from utvm.toolchain import compiler as toolchain_room
from utvm.toolchain import object_file
from utvm.toolchain.compiler import Toolchain


def compile_for(
    board: Board,
    model: Model,
    *,
    name: str | None = None,
    memory: Memory | None = None,
    executor: Literal["aot", "graph"] = "aot",
    in_ram: bool = False,
    accelerator: Wish = "auto",
    target: Target | None = None,
) -> Library:
    """Compile a model into a library for a board.

    Args:
        target: by default the board's own; or that with what was tuned for it.
        in_ram: the image is to lie in RAM alone.
        accelerator: what the board's accelerator is given, where it has one.

    Others are those of :func:`utvm.compiler.compile_model`.
    """
    return compile_model(
        model,
        name=name,
        target=target or board.target,
        memory=memory,
        executor=executor,
        storage=_storage(board, in_ram),
        assistant=assistant(board, accelerator),
    )


def _storage(board: Board, in_ram: bool) -> Storage | None:
    if not board.memory:
        return None
    if in_ram:
        size = sum(region.size for region in board.memory if region.kind == "ram")
        return Storage(f"all RAM of {board.full_name}", size, "use a smaller model, or leave --in-ram out")
    region = board.region(board.layout.code)
    return Storage(f"region {region.name} of {board.full_name}", region.size, roomier(board, region))


def roomier(board: Board, full: MemoryRegion) -> str:
    """Say what has more room than a region has: other settings of its board, or other boards."""
    roles = [role for role, name in enumerate(board.layout.regions) if name == full.name]
    offers = []
    for other in alternatives(board):
        room = min(other.region(other.layout.regions[role]).size for role in roles)
        if room > full.size:
            offers.append(f"--board {other.full_name} has {room // 1024} KiB there instead of {full.size // 1024}")
    return "; ".join(offers) or "use a smaller model, or a board with more memory (./inv board.list)"


READY = "objects"
"""The cache's kind for what is the same in all images of clients: all of it is ours."""

_LINKER_SCRIPT = "linker.ld"
# What TVM's compiler takes tensors to be aligned to, and makes use of where a CPU has vectors (kAllocAlignment).
_VECTOR_BYTES = 64


def build(
    board: Board,
    libraries: Sequence[Library],
    executor: Executor = "host_driven",
    stored: Sequence[npt.ArrayLike] = (),
    pipe: str = "",
    in_ram: bool = False,
    able: frozenset[str] | None = None,
    module: Upload | None = None,
) -> Firmware:
    """Build the firmware that runs some libraries on a board, or the program where the board is a process.

    The result is cached by content: sources, linker script, compiler version and flags.

    Args:
        executor: what drives it: ``host_driven`` by the debug port, ``rpc`` by a client, ``mlperf`` by that of
            MLPerf Tiny; or nobody, ``standing_alone``: it runs its one model on stored inputs and prints the
            outputs.
        stored: for ``standing_alone``, one array an input, of the shape and element type that the model declares.
        pipe: what RPC goes through, by default the first that the board's CPU can have; of no meaning for the
            other executors. What stands alone reports on the console, or through RTT where there is none.
        in_ram: the image is for RAM alone, at addresses that are chosen here; the debugger loads and starts it,
            and flash stays as it is.
        able: what the board can do, reached as it will be; by default what its file says.
        module: for ``rpc``, what a client has uploaded, with these libraries, and where its image goes.
    """
    if in_ram and executor == "standing_alone":
        said = "an image that stands alone starts by itself after a reset: it cannot be in RAM alone"
        raise ConfigError(said, "only the debug port can load and start one")
    toolchain = board.compiler
    image = image_sources(board, libraries, executor, stored, pipe, in_ram, able, module)
    if module is not None:
        elf = _link_module(board, toolchain, image, module.folder)
        functions = module.module.functions
        return Firmware(board, elf, tuple(libraries), image.pipe, in_ram, functions, image.accelerator)
    try:
        entry = Cache("firmware").fetch(
            _key(toolchain, board.cpu, image), lambda work: _link(board, toolchain, image, work)
        )
    except ToolchainError as error:
        if board.port and (number := re.search(r"\bUTVM_PORT_(\w+)\W* undeclared", error.message)):
            said = f"{board.directory / 'board.yaml'}: port: numbers has no {number[1].lower()}"
            raise ConfigError(said, f"{board.port_source} says what its numbers are") from error
        raise
    made = (board, entry / image.name, tuple(libraries), image.pipe, in_ram)
    return Firmware(*made, accelerator=image.accelerator)


def image_sources(
    board: Board,
    libraries: Sequence[Library],
    executor: Executor = "host_driven",
    stored: Sequence[npt.ArrayLike] = (),
    pipe: str = "",
    in_ram: bool = False,
    able: frozenset[str] | None = None,
    module: Upload | None = None,
) -> "ImageSources":
    """Return what :func:`build` would compile; arguments and errors as there, without those of the toolchain."""
    able = board.capabilities if able is None else able
    accelerator = _accelerator_of(board, libraries, module.module if module else NOTHING)
    beside = _driver_of(board) if accelerator else Sources()
    through = _through(board, able, executor, pipe)
    written = generate(libraries, executor, stored, bool(board.memory), module.module if module else None)
    if board.memory:
        image = _image_of_chip(board, board.architecture, through, executor, written, in_ram)
    else:
        image = _image_of_process(board, through, executor, written)
    return replace(
        image.with_driver(beside),
        contents=contents(libraries),
        served=executor == "rpc",
        module=module.module if module else NOTHING,
        pipe=through,
        accelerator=accelerator,
    )


def _link_module(board: Board, toolchain: Toolchain, image: "ImageSources", folder: Path) -> Path:
    """Link a client's image where the client's files are: what strangers send fills nobody's cache."""
    beside = _driver_of(board) if image.accelerator else Sources()
    ours = replace(image, generated=beside.generated, module=NOTHING, memory="")
    ready = _ready_objects(board, toolchain, ours)
    try:
        _link(board, toolchain, replace(image, files=()), folder, ready)
    except ToolchainError as error:
        raise link_error(image.module, error) from error
    return folder / image.name


def _ready_objects(board: Board, toolchain: Toolchain, image: "ImageSources") -> list[Path]:
    """Return objects of what is the same in all images of clients, compiled once."""

    def compile_them(work: Path) -> None:
        image.write(work)
        with toolchain.compiled(
            work,
            image.files,
            small=image.files,
            cpu=board.cpu,
            include=[*image.include, work],
            defines=image.defines,
            path_map=source_folders(board, work),
        ) as objects:
            for number, (made, _) in enumerate(objects.made):
                shutil.copyfile(made, work / f"{number:03}.o")

    return sorted(Cache(READY).fetch(_key(toolchain, board.cpu, image), compile_them).glob("*.o"))


def _accelerator_of(board: Board, libraries: Sequence[Library], module: Module) -> str:
    """Return which accelerator an image drives, by its identity; nothing where it drives none."""
    used = {library.name: library.accelerator for library in libraries if library.accelerator}
    if module.wanted and (asked := identify(module.wanted)):
        used[module.name] = asked
    has = accelerator_of(board).identity if used and board.accelerator else ""
    for name, identity in used.items():
        if identity != has:
            raise ConfigError(
                f"{name} was compiled for the accelerator {identity}, and {board.full_name} has {has or 'none'}",
                "compile it for this board",
            )
    return has


def _driver_of(board: Board) -> Sources:
    """Return the C of an accelerator's driver, and of its model in a process."""
    has = accelerator_of(board)
    behind = has.registers if board.memory else has.model
    if behind is None:
        raise ConfigError(
            f"the accelerator {has.identity} of {board.full_name} cannot be driven: where are its registers?",
            "say it in its board.yaml, below accelerator; registers: 0x43C00000, for instance",
        )
    parts = (has.driver, behind)
    return Sources(
        tuple(file for part in parts for file in part.files),
        tuple(folder for part in parts for folder in part.include),
        {name: text for part in parts for name, text in part.generated.items()},
        tuple(define for part in parts for define in part.defines),
    )


def _through(board: Board, able: frozenset[str], executor: Executor, pipe: str) -> Pipe | None:
    """Return what an image talks through, beside a console that it reports on."""
    if executor in runtime.CLIENT_EXECUTORS:
        return _pipe_of(board, able, pipe)
    silent = executor == "standing_alone" and board.memory and "console" not in able
    return _pipe_of(board, able, "rtt") if silent else None


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
class ImageSources:
    """What is compiled: its file's name, files that are written for it, files of the project, and how.

    ``memory`` is what the layout is chosen from, where it is chosen when the image is linked; ``contents``, what
    constants of the written files hold that these files do not say; ``module``, what a client brings; ``served``,
    whether clients have memory in it; ``pipe`` and ``accelerator`` are as in :class:`Firmware`.
    """

    name: str
    generated: Mapping[str, str]
    files: tuple[Path, ...]
    include: tuple[Path, ...]
    defines: tuple[str, ...]
    memory: str = ""
    contents: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    module: Module = NOTHING
    served: bool = False
    pipe: Pipe | None = None
    accelerator: str = ""

    def with_driver(self, driver: Sources) -> "ImageSources":
        return replace(
            self,
            generated={**self.generated, **driver.generated},
            files=(*self.files, *driver.files),
            include=(*self.include, *driver.include),
            defines=(*self.defines, *driver.defines),
        )

    def write(self, work: Path) -> None:
        for name, text in self.generated.items():
            (work / name).write_text(text, encoding="utf-8")
        for name, data in self.module.objects.items():
            (work / name).write_bytes(data)

    def c_files(self, work: Path) -> list[Path]:
        return [*self.files, *(work / name for name in sorted(self.generated) if name.endswith(".c"))]


def _image_of_chip(
    board: Board,
    architecture: str,
    pipe: Pipe | None,
    executor: Executor,
    generated: dict[str, str],
    in_ram: bool,
) -> ImageSources:
    """Add what a chip needs: a linker script, the board's port, its interrupts and its console."""
    return ImageSources(
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


def _image_of_process(
    board: Board, pipe: Pipe | None, executor: Executor, generated: dict[str, str]
) -> ImageSources:
    if executor == "host_driven":
        raise ConfigError(f"{board.name} has no debug port for the host to drive it", "use RPC")
    return ImageSources(
        "board",
        generated,
        runtime.sources(board.architecture, executor, pipe),
        runtime.include(board.architecture, executor, pipe),
        (*runtime.defines(executor), *_defines(board), f"UTVM_MEMORY_ALIGNMENT={_VECTOR_BYTES}u"),
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
    return ("UTVM_NOBODY_COUNTS=1",) if board.cycle_counter == "none" else ()


def _defines(board: Board) -> tuple[str, ...]:
    return (f'UTVM_BOARD_NAME="{board.name}"', f"UTVM_CLOCK_HZ={board.clock_hz}u", "UTVM_STEPS=1")


def _key(toolchain: Toolchain, cpu: str, image: ImageSources) -> str:
    headers = sorted(path for folder in image.include for path in folder.glob("*.h"))
    return content_key(
        tree_digest(Path(__file__).parent),
        Path(toolchain_room.__file__).read_text(),
        Path(object_file.__file__).read_text(),
        toolchain.version,
        *(path.read_text() for path in toolchain.files),
        cpu,
        *image.defines,
        image.memory,
        *(text for item in sorted(image.generated.items()) for text in item),
        *(_digest(data) for _, large in sorted(image.contents.items()) for data in large.values()),
        *(path.read_text() for path in (*image.files, *headers)),
    )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _link(board: Board, toolchain: Toolchain, image: ImageSources, work: Path, ready: Sequence[Path] = ()) -> None:
    """Write the generated files into a folder and link everything there, with objects that are ready."""
    image.write(work)
    script = work / _LINKER_SCRIPT if _LINKER_SCRIPT in image.generated else None
    elf, map_file = work / image.name, work / f"{image.name}.map"
    with toolchain.compiled(
        work,
        image.c_files(work),
        small=image.files,
        contents={work / file: large for file, large in image.contents.items()},
        cpu=board.cpu,
        include=[*image.include, work],
        defines=image.defines,
        path_map=source_folders(board, work),
        flags={work / name: foreign_flags() for name in image.module.sources},
        beside=[*ready, *(work / name for name in image.module.objects), *_linker_words(board, image)],
    ) as objects:
        if image.memory and script:
            ram.link(objects, board, elf, script, map_file, image.served)
            return
        try:
            objects.link(elf, linker_script=script, map_file=map_file)
        except ToolchainError as error:
            raise _too_big(board, error.message) or error from None


def _linker_words(board: Board, image: ImageSources) -> tuple[str, ...]:
    """Return what the linker is told where a client's objects are among its own."""
    if image.module is NOTHING:
        return ()
    # No plugin looks into them. LLVM says other widths than gcc of what no function of TVM's is passed, and of its
    # stack what the C library's assembler files do not say.
    arm = ("-Wl,--no-enum-size-warning", "-Wl,--no-wchar-size-warning") if board.memory and _is_arm(board) else ()
    return ("-fno-lto", "-fno-use-linker-plugin", "-Wl,-z,noexecstack", *arm)


def _is_arm(board: Board) -> bool:
    return board.architecture.startswith("cortex")


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
        f"section {name} does not fit: region {region.name} of {board.full_name} has {region.size} bytes, "
        f"the firmware needs {need} ({overflow[2]} too many)",
        roomier(board, region),
    )
