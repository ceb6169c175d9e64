"""From libraries to an ELF file."""

import re
from collections.abc import Sequence
from pathlib import Path

import jinja2

from utvm import runtime
from utvm import toolchain as toolchain_room
from utvm.boards import Board
from utvm.cache import Cache, content_key, tree_digest
from utvm.compiler import Library
from utvm.errors import ConfigError, DoesNotFitError, ToolchainError
from utvm.firmware.image import Firmware
from utvm.toolchain import ROOT, Toolchain

# The fault handler's frames and nothing else run on it.
_FAULT_STACK_SIZE = 256

_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=jinja2.StrictUndefined,
)


def build(board: Board, libraries: Sequence[Library]) -> Firmware:
    """Build the firmware that runs some libraries on a board.

    The result is cached by content: sources, linker script, compiler version and flags.

    Raises:
        ConfigError: two libraries have one name, or there is none.
        DoesNotFitError: a section does not fit its region; names section, need and room in bytes.
        ToolchainError: the compiler is missing or refuses a source.
    """
    names = [library.name for library in libraries]
    if not names or len(set(names)) != len(names):
        raise ConfigError(f"firmware needs libraries of different names, not {names}")
    toolchain = Toolchain(board.toolchain)
    cpu = toolchain.cpu(board.cpu)
    generated = {
        "linker.ld": _render(
            "linker.ld.j2",
            board=board,
            regions=[board.region(name) for name in dict.fromkeys(board.layout.regions)],
            fault_stack_size=_FAULT_STACK_SIZE,
        ),
        "programs.c": _render(
            "programs.c.j2",
            libraries=libraries,
            arena_bytes=max(library.arena_bytes for library in libraries),
        ),
    }
    for library in libraries:
        generated.update(library.sources)
    kept = (*runtime.sources(cpu.architecture), board.port_source)
    headers = (*runtime.INCLUDE.glob("*.h"), *(runtime.DIRECTORY / cpu.architecture).glob("*.h"))
    key = content_key(
        tree_digest(Path(__file__).parent),
        Path(toolchain_room.__file__).read_text(),
        toolchain.version,
        toolchain.path.read_text(),
        f"{board.name} {board.cpu} {board.interrupts}",
        *(text for item in sorted(generated.items()) for text in item),
        *(path.read_text() for path in (*kept, *sorted(headers))),
    )
    entry = Cache("firmware").fetch(key, lambda work: _link(board, toolchain, generated, kept, work))
    return Firmware(board, entry / "firmware.elf", tuple(libraries))


def _render(template: str, **values: object) -> str:
    return _TEMPLATES.get_template(template).render(**values)


def _link(board: Board, toolchain: Toolchain, generated: dict[str, str], kept: Sequence[Path], work: Path) -> None:
    """Write the generated files into a folder and link everything there."""
    for name, text in generated.items():
        (work / name).write_text(text, encoding="utf-8")
    architecture = toolchain.cpu(board.cpu).architecture
    try:
        toolchain.link(
            work / "firmware.elf",
            [*kept, *(work / name for name in sorted(generated) if name.endswith(".c"))],
            cpu=board.cpu,
            linker_script=work / "linker.ld",
            include=[runtime.INCLUDE, runtime.DIRECTORY / architecture, work],
            defines=[f"UTVM_INTERRUPTS={board.interrupts}", f'UTVM_BOARD_NAME="{board.name}"'],
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
