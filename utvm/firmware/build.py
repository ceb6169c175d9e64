"""From libraries to an ELF file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from utvm import runtime
from utvm import toolchain as toolchain_room
from utvm.boards import Board, ProcessBoard
from utvm.cache import Cache, content_key, tree_digest
from utvm.compiler import Library
from utvm.errors import ConfigError, DoesNotFitError, ToolchainError
from utvm.firmware.image import Firmware
from utvm.firmware.sources import generate, render
from utvm.runtime import Executor, Pipe
from utvm.toolchain import ROOT, Toolchain

# The fault handler's frames and nothing else run on it.
_FAULT_STACK_SIZE = 256


def pipe_of(board: Board | ProcessBoard, name: str) -> Pipe:
    """Return the pipe of that name, if the board's CPU can have it.

    Raises:
        ConfigError: it cannot.
    """
    known = runtime.pipes(Toolchain(board.toolchain).cpu(board.cpu).architecture)
    for pipe in known:
        if pipe == name:
            return pipe
    raise ConfigError(f"{board.name} has no transport {name!r}", f"it has: {', '.join(known)}")


def build(
    board: Board,
    libraries: Sequence[Library],
    executor: Executor = "host_driven",
    pipe: Pipe = "console",
) -> Firmware:
    """Build the firmware that runs some libraries on a board.

    The result is cached by content: sources, linker script, compiler version and flags.

    Args:
        executor: what drives it: ``host_driven`` by the debug port, ``rpc`` by a client.
        pipe: what RPC goes through; of no meaning for the other executors.

    Raises:
        ConfigError: two libraries have one name, or there is none; the board's CPU has no such pipe.
        DoesNotFitError: a section does not fit its region; names section, need and room in bytes.
        ToolchainError: the compiler is missing or refuses a source.
    """
    toolchain = Toolchain(board.toolchain)
    architecture = toolchain.cpu(board.cpu).architecture
    through = pipe_of(board, pipe) if executor == "rpc" else None
    generated = generate(libraries, executor, linked_by_script=True)
    generated["linker.ld"] = render(
        "linker.ld.j2",
        board=board,
        regions=[board.region(name) for name in dict.fromkeys(board.layout.regions)],
        fault_stack_size=_FAULT_STACK_SIZE,
    )
    image = _Image(
        generated,
        (*runtime.sources(architecture, executor, through), board.port_source),
        runtime.include(architecture, executor),
        (
            f"UTVM_INTERRUPTS={board.interrupts}",
            f"UTVM_CONSOLE_BAUD={board.console.baud}u",
            # Without the console's interrupts, nothing but its own work counts in a run.
            f"UTVM_CONSOLE_IRQ={board.console.irq if through == 'console' else -1}",
            *runtime.defines(executor),
            *_defines(board.name, board.clock_hz),
        ),
    )
    entry = Cache("firmware").fetch(
        _key(toolchain, board.cpu, image), lambda work: _link(board, toolchain, image, work)
    )
    return Firmware(board, entry / "firmware.elf", tuple(libraries))


def build_process(board: ProcessBoard, libraries: Sequence[Library]) -> Path:
    """Build the program that is a board with some libraries, and answers RPC on standard input and output.

    Raises:
        ConfigError: two libraries have one name, or there is none.
        ToolchainError: the compiler is missing or refuses a source.
    """
    toolchain = Toolchain(board.toolchain)
    architecture = toolchain.cpu(board.cpu).architecture
    image = _Image(
        generate(libraries, "rpc", linked_by_script=False),
        runtime.sources(architecture, "rpc", "stdio"),
        runtime.include(architecture, "rpc"),
        (*runtime.defines("rpc"), *_defines(board.name, board.clock_hz)),
    )

    def link(work: Path) -> None:
        image.write(work)
        toolchain.link(
            work / "board",
            image.c_files(work),
            cpu=board.cpu,
            include=[*image.include, work],
            defines=image.defines,
            path_map=[(work, "/utvm/generated"), (ROOT, "/utvm")],
        )

    return Cache("firmware").fetch(_key(toolchain, board.cpu, image), link) / "board"


@dataclass(frozen=True)
class _Image:
    """What is compiled: files that are written for it, files of the project, and how."""

    generated: Mapping[str, str]
    kept: tuple[Path, ...]
    include: tuple[Path, ...]
    defines: tuple[str, ...]

    def write(self, work: Path) -> None:
        for name, text in self.generated.items():
            (work / name).write_text(text, encoding="utf-8")

    def c_files(self, work: Path) -> list[Path]:
        return [*self.kept, *(work / name for name in sorted(self.generated) if name.endswith(".c"))]


def _defines(name: str, clock_hz: int) -> tuple[str, ...]:
    return (f'UTVM_BOARD_NAME="{name}"', f"UTVM_CLOCK_HZ={clock_hz}u")


def _key(toolchain: Toolchain, cpu: str, image: _Image) -> str:
    headers = sorted(path for folder in image.include for path in folder.glob("*.h"))
    return content_key(
        tree_digest(Path(__file__).parent),
        Path(toolchain_room.__file__).read_text(),
        toolchain.version,
        toolchain.path.read_text(),
        cpu,
        *image.defines,
        *(text for item in sorted(image.generated.items()) for text in item),
        *(path.read_text() for path in (*image.kept, *headers)),
    )


def _link(board: Board, toolchain: Toolchain, image: _Image, work: Path) -> None:
    """Write the generated files into a folder and link everything there."""
    image.write(work)
    try:
        toolchain.link(
            work / "firmware.elf",
            image.c_files(work),
            cpu=board.cpu,
            linker_script=work / "linker.ld",
            include=[*image.include, work],
            defines=image.defines,
            path_map=[
                (work, "/utvm/generated"),
                (ROOT, "/utvm"),
                (board.directory, f"/utvm/boards/{board.name}"),
            ],
        )
    except ToolchainError as error:
        raise _too_big(board, error.message) or error from None


def _too_big(board: Board, said: str) -> DoesNotFitError | None:
    """Turn the linker's words about an overflow into an error that names section, need and room."""
    overflow = re.search(r"region [`']([\w-]+)' overflowed by (\d+) bytes", said)
    if not overflow:
        return None
    region = board.region(overflow[1])
    section = re.search(r"section [`'](\.[\w.]+)' will not fit in region [`']" + re.escape(region.name), said)
    name = section[1] if section else "firmware"
    need = region.size + int(overflow[2])
    return DoesNotFitError(
        f"section {name} does not fit: region {region.name} of {board.name} has {region.size} bytes, "
        f"the firmware needs {need} ({overflow[2]} too many)",
        "use a smaller model, or a board with more memory (./inv board.list)",
    )
