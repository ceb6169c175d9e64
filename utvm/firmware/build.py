# SPDX-License-Identifier: Apache-2.0
"""Builds an ELF file from models or libraries."""

import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy.typing as npt

from utvm import compiler, errors, paths, runtime
from utvm.base.storage import files
from utvm.base.storage.cache import Cache, content_key, tree_digest
from utvm.base.text.quoting import c_string
from utvm.boards import Board, alternatives
from utvm.boards.accelerators import Sources, accelerator_of, assistant, identify
from utvm.boards.parts import MemoryRegion
from utvm.compiler.target import Storage
from utvm.firmware import ram
from utvm.firmware.image import GENERATED, Firmware
from utvm.firmware.module import NOTHING, Module, Upload, foreign_flags, link_error
from utvm.firmware.sources import contents, generate, linker_script
from utvm.toolchain import compiler as toolchain_compiler
from utvm.toolchain import object_file
from utvm.toolchain.compiler import Toolchain, mapped_name


def compile_for(
    board: Board,
    model: compiler.Model,
    options: compiler.CompileOptions = compiler.CompileOptions(),
    name: str | None = None,
) -> compiler.Library:
    """Compile a model into a library for a board; see :func:`utvm.compiler.compile_model`."""
    target = options.target or board.target
    return compiler.compile_model(
        model,
        name=name,
        target=replace(target, ram_room=0) if options.in_ram else target,  # All weights are in RAM then.
        memory=options.memory,
        executor=options.executor,
        storage=_storage(board, options.in_ram),
        assistant=assistant(board, options.accelerator),
    )


def _storage(board: Board, in_ram: bool) -> Storage | None:
    if not board.memory:
        return None
    if in_ram:
        size = sum(region.size for region in board.memory if region.kind == "ram")
        return Storage(f"all RAM of {board.full_name}", size, "use a smaller model, or leave --set in-ram out")
    region = board.region(board.layout.code)
    return Storage(f"region {region.name} of {board.full_name}", region.size, _more_space_hint(board, region))


def _more_space_hint(board: Board, full: MemoryRegion) -> str:
    roles = [role for role, name in enumerate(board.layout.regions) if name == full.name]
    offers = []
    for other in alternatives(board):
        size = min(other.region(other.layout.regions[role]).size for role in roles)
        if size > full.size:
            offers.append(f"--board {other.full_name} has {size // 1024} KiB there instead of {full.size // 1024}")
    hint = "; ".join(offers) or "use a smaller model, or a board with more memory (./inv board.list)"
    if "dsp" in board.target.extensions:
        hint = f"try --set optimize={'flash' if full.kind == 'flash' else 'ram'}; or {hint}"
    return hint


READY = "objects"
"""Cache kind of the objects common to all images of RPC clients."""

_LINKER_SCRIPT = "linker.ld"
# Alignment of tensors that TVM's compiler assumes on CPUs with vectors (kAllocAlignment).
_VECTOR_BYTES = 64


def build(
    board: Board,
    libraries: Sequence[compiler.Library],
    executor: runtime.Executor = "host_driven",
    stored: Sequence[npt.ArrayLike] = (),
    pipe: str = "",
    in_ram: bool = False,
    able: frozenset[str] | None = None,
    module: Upload | None = None,
) -> Firmware:
    """Build the firmware that runs libraries on a board, or the program of a board that is a process.

    The result is cached by sources, linker script, compiler version and flags.

    Args:
        executor: ``host_driven`` by the debug port, ``rpc`` by a client, ``mlperf`` by MLPerf Tiny's runner, or
            ``standing_alone``: it runs one model on the inputs ``stored`` and prints the outputs.
        pipe: for RPC; by default the first one of the CPU. A standalone image without a console reports over RTT.
        in_ram: the image is for RAM only; the debugger loads and starts it, and flash is not written.
        able: capabilities of the opened board; by default those in its file.
        module: for ``rpc``, a module of a client, with these libraries, and the folder for its image.
    """
    if in_ram and executor == "standing_alone":
        raise errors.ConfigError(
            "a standalone image starts by itself after a reset: it cannot be in RAM alone", "leave --set in-ram out"
        )
    toolchain = board.compiler
    image = image_sources(board, libraries, executor, stored, pipe, in_ram, able, module)
    if module is not None:
        elf = _link_module(board, toolchain, image, module.folder)
        functions = module.module.functions
        return Firmware(board, elf, tuple(libraries), image.pipe, in_ram, functions, image.accelerator)
    try:
        entry = Cache("firmware").fetch(
            _key(toolchain, board.cpu, image),
            lambda work: _link(board, toolchain, image, work, _common_objects(board, toolchain, image)),
        )
    except errors.ToolchainError as error:
        if board.port and (number := re.search(r"\bUTVM_PORT_(\w+)\W* undeclared", error.message)):
            raise errors.ConfigError(
                f"{board.directory / 'board.yaml'}: port: numbers has no {number[1].lower()}",
                f"{board.port_source} lists its numbers",
            ) from error
        raise
    elf = entry / image.name
    return Firmware(board, elf, tuple(libraries), image.pipe, in_ram, accelerator=image.accelerator)


def image_sources(
    board: Board,
    libraries: Sequence[compiler.Library],
    executor: runtime.Executor = "host_driven",
    stored: Sequence[npt.ArrayLike] = (),
    pipe: str = "",
    in_ram: bool = False,
    able: frozenset[str] | None = None,
    module: Upload | None = None,
) -> "ImageSources":
    """Return the sources that :func:`build` compiles; with its arguments and errors except toolchain errors."""
    able = board.capabilities if able is None else able
    accelerator = _check_accelerator(board, libraries, module.module if module else NOTHING)
    driver = _driver_of(board) if accelerator else Sources()
    pipe_used = _choose_pipe(board, able, executor, pipe)
    generated = generate(libraries, executor, stored, bool(board.memory), module.module if module else None)
    if board.memory:
        image = _image_of_chip(board, pipe_used, executor, generated, in_ram)
    else:
        image = _image_of_process(board, pipe_used, executor, generated)
    return replace(
        image + driver,
        contents=contents(libraries),
        served=executor == "rpc",
        module=module.module if module else NOTHING,
        pipe=pipe_used,
        accelerator=accelerator,
    )


def _link_module(board: Board, toolchain: Toolchain, image: "ImageSources", folder: Path) -> Path:
    # Link in the client's folder: uploads must not fill the cache.
    common = _common_objects(board, toolchain, image)
    try:
        _link(board, toolchain, image, folder, common)
    except errors.ToolchainError as error:
        raise link_error(image.module, error) from error
    return folder / image.name


def _common_objects(board: Board, toolchain: Toolchain, image: "ImageSources") -> dict[Path, Path]:
    """Return the objects of an image's own files, which do not depend on its libraries, by source."""
    driver = _driver_of(board) if image.accelerator else Sources()
    common = replace(image, generated=driver.generated, module=NOTHING, memory="", contents={})

    def compile_all(work: Path) -> None:
        common.write(work)
        with toolchain.compile_objects(
            work,
            common.files,
            small=common.files,
            cpu=board.cpu,
            include=[*common.include, work],
            defines=common.defines,
            path_map=source_folders(board, work),
        ) as objects:
            for number, (object_file, _) in enumerate(objects.files):
                shutil.copyfile(object_file, work / f"{number:03}.o")

    objects = sorted(Cache(READY).fetch(_key(toolchain, board.cpu, common), compile_all).glob("*.o"))
    return dict(zip(common.files, objects, strict=True))


def _check_accelerator(board: Board, libraries: Sequence[compiler.Library], module: Module) -> str:
    """Return the identity of the accelerator that an image uses, or ``""``; it must be the board's."""
    used = {library.name: library.accelerator for library in libraries if library.accelerator}
    if module.undefined and (needed := identify(module.undefined)):
        used[module.name] = needed
    has = accelerator_of(board).identity if used and board.accelerator else ""
    for name, identity in used.items():
        if identity != has:
            raise errors.ConfigError(
                f"{name} was compiled for the accelerator {identity}, and {board.full_name} has {has or 'none'}",
                "compile it for this board",
            )
    return has


def _driver_of(board: Board) -> Sources:
    unit = accelerator_of(board)
    device = unit.registers if board.memory else unit.model
    if device is None:
        raise errors.ConfigError(
            f"the accelerator {unit.identity} of {board.full_name} cannot be driven: its registers are unknown",
            "give their address in board.yaml, below accelerator; for instance registers: 0x43C00000",
        )
    return unit.driver + device


def _choose_pipe(board: Board, able: frozenset[str], executor: runtime.Executor, name: str) -> runtime.Pipe | None:
    if executor not in runtime.CLIENT_EXECUTORS:
        if executor != "standing_alone" or not board.memory or "console" in able:
            return None
        name = "rtt"
    needs = runtime.PIPE_NEEDS
    known = [pipe for pipe in runtime.pipes(board.architecture) if pipe not in needs or needs[pipe] in able]
    for pipe in known:
        if name in (pipe, ""):
            return pipe
    raise errors.ConfigError(f"{board.name} has no transport {name!r}", f"it has: {', '.join(known)}")


@dataclass(frozen=True)
class ImageSources(Sources):
    """Sources of an image.

    Attributes:
        name: name of the linked file.
        memory: memory map and layout, if addresses are chosen when linking.
        contents: contents of large arrays omitted from the generated files.
        served: True if clients allocate memory in the image.
        pipe, accelerator: as in :class:`Firmware`.
    """

    name: str = ""
    memory: str = ""
    contents: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    module: Module = NOTHING
    served: bool = False
    pipe: runtime.Pipe | None = None
    accelerator: str = ""

    def write(self, work: Path) -> None:
        for name, text in self.generated.items():
            (work / name).write_text(text, encoding="utf-8")
        for name, data in self.module.objects.items():
            (work / name).write_bytes(data)

    def c_files(self, work: Path) -> list[Path]:
        return [*self.files, *(work / name for name in sorted(self.generated) if name.endswith(".c"))]


def _image_of_chip(
    board: Board, pipe: runtime.Pipe | None, executor: runtime.Executor, generated: dict[str, str], in_ram: bool
) -> ImageSources:
    return ImageSources(
        (*runtime.sources(board.architecture, executor, pipe), board.port_source),
        runtime.include(board.architecture, executor, pipe),
        generated | {_LINKER_SCRIPT: linker_script(board, {} if in_ram else None)},
        (
            f"UTVM_INTERRUPTS={board.interrupts}",
            *((f"UTVM_CONSOLE_BAUD={board.line.baud}u",) if board.line else ()),
            # Without RPC on the console, its interrupts must not count in a run.
            f"UTVM_CONSOLE_IRQS={','.join(map(str, board.console.irqs)) if pipe == 'console' else -1}",
            f"UTVM_MEMORY={','.join(f'{{{region.address:#x}u,{region.size}u}}' for region in board.memory)}",
            *_counter_of(board),
            *(board.port.defines if board.port else ()),
            *(("UTVM_STACK_GUARD=1",) if board.guards_stack else ()),
            *runtime.defines(executor, pipe),
            *_defines(board),
        ),
        name="firmware.elf",
        memory=repr((board.memory, board.layout)) if in_ram else "",
    )


def _image_of_process(
    board: Board, pipe: runtime.Pipe | None, executor: runtime.Executor, generated: dict[str, str]
) -> ImageSources:
    if executor == "host_driven":
        raise errors.ConfigError(f"{board.name} has no debug port for the host to drive it", "use RPC")
    return ImageSources(
        runtime.sources(board.architecture, executor, pipe),
        runtime.include(board.architecture, executor, pipe),
        generated,
        (*runtime.defines(executor), *_defines(board), f"UTVM_MEMORY_ALIGNMENT={_VECTOR_BYTES}u"),
        name="board",
    )


def _counter_of(board: Board) -> tuple[str, ...]:
    ratio = board.counter_ratio
    if board.timing and board.virtual.emulator:
        return (f"UTVM_MEMORY_COUNTS={board.virtual.emulator.counter + 4:#x}u",)
    if board.cycle_counter == "port":
        scale = (f"UTVM_COUNTS={ratio.numerator}u", f"UTVM_COUNTER_TICKS={ratio.denominator}u")
        return ("UTVM_PORT_COUNTS=1", *(scale if ratio != 1 else ()))
    if board.cycle_counter == "systick":
        return ("UTVM_SYSTICK_COUNTS=1", *((f"UTVM_COUNT_SCALE={round(ratio * 2**32)}u",) if ratio != 1 else ()))
    return ("UTVM_NOBODY_COUNTS=1",) if board.cycle_counter == "none" else ()


def _defines(board: Board) -> tuple[str, ...]:
    return (f"UTVM_BOARD_NAME={c_string(board.name)}", f"UTVM_CLOCK_HZ={board.clock_hz}u", "UTVM_STEPS=1")


def _key(toolchain: Toolchain, cpu: str, image: ImageSources) -> str:
    headers = sorted(path for folder in image.include for path in folder.glob("*.h"))
    return content_key(
        tree_digest(Path(__file__).parent),
        Path(toolchain_compiler.__file__).read_text(),
        Path(object_file.__file__).read_text(),
        toolchain.version,
        *(path.read_text() for path in toolchain.files),
        cpu,
        *image.defines,
        image.memory,
        *(text for item in sorted(image.generated.items()) for text in item),
        *(hashlib.sha256(data).hexdigest() for _, large in sorted(image.contents.items()) for data in large.values()),
        *(path.read_text() for path in (*image.files, *headers)),
    )


def _link(board: Board, toolchain: Toolchain, image: ImageSources, work: Path, compiled: Mapping[Path, Path]) -> None:
    image.write(work)
    script = work / _LINKER_SCRIPT if _LINKER_SCRIPT in image.generated else None
    elf, map_file = work / image.name, work / f"{image.name}.map"
    with toolchain.compile_objects(
        work,
        image.c_files(work),
        compiled=compiled,
        contents={work / file: large for file, large in image.contents.items()},
        cpu=board.cpu,
        include=[*image.include, work],
        defines=image.defines,
        path_map=source_folders(board, work),
        flags={work / name: foreign_flags() for name in image.module.sources},
        beside=[*(work / name for name in image.module.objects), *_linker_options(board, image)],
    ) as objects:
        if image.memory and script:
            ram.link(objects, board, elf, script, map_file, image.served)
            return
        try:
            objects.link(elf, linker_script=script, map_file=map_file)
        except errors.ToolchainError as error:
            raise _too_big(board, error.message) or error from None


def _linker_options(board: Board, image: ImageSources) -> tuple[str, ...]:
    if image.module is NOTHING:
        return ()
    # A client's objects must not reach linker plugins. LLVM declares other enum and wchar_t sizes than gcc (TVM's
    # functions use neither) and other stack permissions than the C library's assembler files.
    arm = (
        ("-Wl,--no-enum-size-warning", "-Wl,--no-wchar-size-warning")
        if board.memory and board.architecture.startswith("cortex")
        else ()
    )
    return ("-fno-lto", "-fno-use-linker-plugin", "-Wl,-z,noexecstack", *arm)


def source_folders(board: Board, generated: Path) -> list[tuple[Path, str]]:
    """Return an image's source folders and their names in debug information; ``generated`` holds the ELF file."""
    return [(paths.ROOT, "/utvm"), (board.directory, f"/utvm/boards/{board.name}"), (generated, GENERATED)]


def shipped_sources(elf: Path) -> Path:
    """Return the folder of an ELF file's sources, ``NAME-sources`` beside it, which need not exist."""
    return elf.with_name(f"{elf.stem}-sources")


def ship_sources(image: Firmware, executor: runtime.Executor, stored: Sequence[npt.ArrayLike], elf: Path) -> None:
    """Copy an image's sources beside a copy of its ELF file, below their paths in debug information."""
    sources = image_sources(image.board, image.libraries, executor, stored)
    generated = image.elf.parent
    known = sorted(source_folders(image.board, generated), key=lambda entry: len(str(entry[0])))
    headers = (header for folder in (generated, *sources.include) for header in folder.glob("*.h"))
    for source in (*sources.c_files(generated), *headers):
        # The assembler notes no path.
        name = source.name if source.suffix == ".S" else mapped_name(source, known).lstrip("/")
        target = shipped_sources(elf) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        files.write_whole(target, source.read_bytes())


def _too_big(board: Board, message: str) -> errors.DoesNotFitError | None:
    overflow = re.search(r"region [`']([\w-]+)' overflowed by (\d+) bytes", message)
    if not overflow or not board.memory:
        return None
    region = board.region(overflow[1])
    section = re.search(r"section [`'](\.[\w.]+)' will not fit in region [`']" + re.escape(region.name), message)
    name = section[1] if section else "firmware"
    need = region.size + int(overflow[2])
    return errors.DoesNotFitError(
        f"section {name} does not fit: region {region.name} of {board.full_name} has {region.size} bytes, "
        f"the firmware needs {need} ({overflow[2]} too many)",
        _more_space_hint(board, region),
    )
