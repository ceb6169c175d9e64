"""From libraries to an ELF file."""

import hashlib
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import jinja2
import platformdirs

from utvm import runtime
from utvm.boards import Board
from utvm.compiler import Library
from utvm.errors import ConfigError, DoesNotFitError, ToolchainError
from utvm.firmware.image import Firmware
from utvm.toolchain import Toolchain

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
    headers = sorted(runtime.INCLUDE.glob("*.h")) + sorted(
        (runtime.DIRECTORY / cpu.architecture).glob("*.h")
    )
    digest = _digest(
        toolchain.version,
        toolchain.path.read_text(),
        board.name,
        *(text for item in sorted(generated.items()) for text in item),
        *(path.read_text() for path in (*kept, *headers)),
    )
    directory = Path(platformdirs.user_cache_dir("utvm")) / "firmware" / digest
    if not (directory / "firmware.elf").is_file():
        _link(board, toolchain, generated, kept, directory)
    return Firmware(board, directory / "firmware.elf", tuple(libraries))


def _render(template: str, **values: object) -> str:
    return _TEMPLATES.get_template(template).render(**values)


def _digest(*texts: str) -> str:
    state = hashlib.sha256()
    for text in texts:
        state.update(len(text).to_bytes(8, "little"))
        state.update(text.encode())
    return state.hexdigest()


def _link(
    board: Board, toolchain: Toolchain, generated: dict[str, str], kept: Sequence[Path], directory: Path
) -> None:
    """Compile and link in a folder of its own, and move that into place when it is complete."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".building-", dir=directory.parent))
    try:
        for name, text in generated.items():
            (work / name).write_text(text, encoding="utf-8")
        architecture = toolchain.cpu(board.cpu).architecture
        sources = [work / name for name in sorted(generated) if name.endswith(".c")]
        try:
            toolchain.link(
                work / "firmware.elf",
                [*kept, *sources],
                cpu=board.cpu,
                linker_script=work / "linker.ld",
                include=[runtime.INCLUDE, runtime.DIRECTORY / architecture, work],
                defines=[f"UTVM_INTERRUPTS={board.interrupts}", f'UTVM_BOARD_NAME="{board.name}"'],
                path_map=[
                    (work, "generated"),
                    (runtime.DIRECTORY, "runtime"),
                    (board.directory, f"boards/{board.name}"),
                ],
            )
        except ToolchainError as error:
            raise _too_big(board, error.message) or error from None
        try:
            work.rename(directory)
        except OSError:
            # Another process was faster with the same content.
            if not (directory / "firmware.elf").is_file():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


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
