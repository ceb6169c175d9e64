# SPDX-License-Identifier: Apache-2.0
"""Cross compilers as data: one YAML file a toolchain, one row a CPU."""

import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from utvm.base.process.run import run_tool, version_of
from utvm.base.storage.config import Record, load_yaml
from utvm.errors import ConfigError, ToolchainError
from utvm.paths import DATA

__all__ = ["DIRECTORY", "OWN_ROWS", "Cpu", "Objects", "Toolchain", "ToolchainFile"]

DIRECTORY = DATA / "toolchains"
OWN_ROWS = "toolchain.yaml"
"""The file of a board's folder that has rows of its own."""

_PREFIX_MAPS = ("-ffile-prefix-map", "-Wa,--debug-prefix-map")
_KEYS_OF_ROWS = "docs/porting.md, step 1, says what a row is"


class Cpu(Record):
    """A row of a toolchain file: the flags for one core with its floating-point unit.

    ``architecture`` names the folder of the runtime that has the start-up code for it, ``core`` is its maker's
    name of it. ``extensions`` are what kernels may use beyond plain C: ``dsp`` is Arm's DSP extension (dual 16-bit
    multiply-accumulate), ``mve`` and ``neon`` its vectors of 16 bytes; ``fpu`` is a unit for float32 with 32
    registers; one that no kernel knows changes nothing. ``traps`` are mistakes of a program that are faults on it,
    not on every CPU. ``breakpoint_kind`` is what GDB's protocol calls a breakpoint in its code: for Arm, 2 is
    Thumb and 4 is not. ``handler_stack`` is how many bytes of stack its fault handler needs, and what else runs on
    the same. ``tells_faults`` is whether it says what a fault was, and not only that there was one.
    ``stack_guard`` is what can stop a stack that overflows into memory: a region of its memory protection unit, or
    a limit of the stack pointer.
    """

    architecture: str
    core: str
    flags: tuple[str, ...]
    extensions: frozenset[Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*$")]] = frozenset()
    traps: frozenset[Literal["division by zero", "code that is not Thumb"]] = frozenset()
    breakpoint_kind: Literal[2, 4] = 2
    handler_stack: Annotated[int, Field(gt=0, multiple_of=16)] = 256
    tells_faults: bool = True
    stack_guard: Literal["none", "mpu", "limit"] = "none"


class _Rows(Record):
    cpus: dict[str, Cpu] = Field(min_length=1)


class ToolchainFile(Record):
    """Contents of a toolchain file.

    ``c_flags`` are for all C; ``small_flags`` come after them for code whose size matters more than its speed.
    """

    name: str
    prefix: str
    packages: tuple[str, ...]
    c_flags: tuple[str, ...]
    small_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    libraries: tuple[str, ...]
    cpus: dict[str, Cpu] = Field(min_length=1)


@functools.lru_cache(maxsize=8)
def _read(path: Path, _stamp: tuple[int, ...]) -> ToolchainFile:
    known = ", ".join(sorted(path.stem for path in DIRECTORY.glob("*.yaml")))
    return load_yaml(path, ToolchainFile, f"known toolchains: {known}")


class Toolchain:
    """A cross compiler and its binutils.

    Args:
        beside: a folder whose :data:`OWN_ROWS`, if it is there, has rows beyond those of the toolchain's file.
    """

    def __init__(self, name: str, beside: Path | None = None) -> None:
        self.path = DIRECTORY / f"{name}.yaml"
        stamp = self.path.stat() if self.path.is_file() else None
        # Hundreds of boards ask for one file.
        self.data = _read(self.path, (stamp.st_mtime_ns, stamp.st_size) if stamp else ())
        self.name = self.data.name
        self.files: tuple[Path, ...] = (self.path,)
        own = beside / OWN_ROWS if beside else None
        if own and own.is_file():
            self.files += (own,)
            rows = load_yaml(own, _Rows, _KEYS_OF_ROWS).cpus
            if double := sorted(rows.keys() & self.data.cpus.keys()):
                said = f"{own}: cpus: {self.path} has a row {double[0]!r} too"
                raise ConfigError(said, "give yours another name")
            self.data = self.data.model_copy(update={"cpus": {**self.data.cpus, **rows}})

    def cpu(self, name: str) -> Cpu:
        try:
            return self.data.cpus[name]
        except KeyError:
            rows = ", ".join(self.data.cpus)
            hint = f"rows it has: {rows}; one of your own stands in a {OWN_ROWS} beside your board.yaml"
            raise ConfigError(f"{self.path}: cpus has no row {name!r}", hint) from None

    def tool(self, name: str) -> Path:
        found = shutil.which(self.data.prefix + name)
        if found is None:
            raise ToolchainError(
                f"{self.data.prefix}{name} is not installed",
                f"sudo apt-get install {' '.join(self.data.packages)}",
            )
        return Path(found)

    @functools.cached_property
    def version(self) -> str:
        return version_of([self.tool("gcc"), "--version"], error=ToolchainError)

    @contextlib.contextmanager
    def compiled(
        self,
        directory: Path,
        sources: Sequence[Path],
        *,
        cpu: str,
        include: Sequence[Path],
        defines: Sequence[str] = (),
        path_map: Sequence[tuple[Path, str]] = (),
        small: Collection[Path] = (),
        contents: Mapping[Path, Mapping[str, bytes]] | None = None,
        flags: Mapping[Path, Sequence[str]] | None = None,
        beside: Sequence[str | Path] = (),
    ) -> Iterator["Objects"]:
        """Compile C and assembler sources, on all cores; the objects are there for the length of a ``with`` block.

        Args:
            path_map: directories and what stands for them in debug information, so that the output does not
                depend on where the checkout lies.
            small: those of the sources whose size matters more than their speed.
            contents: source to what constants of it hold that it does not say.
            flags: source to flags that only it has, behind all others.
            beside: objects that were compiled elsewhere, and words for the linker.
        """
        compiler: list[str | Path] = [self.tool("gcc"), *self.cpu(cpu).flags, *self.data.c_flags]
        # Of several that fit, the last one counts: one directory may lie in another.
        path_map = sorted(path_map, key=lambda entry: len(str(entry[0])))
        # The compiler's own folder as it calls it by itself, and the others as we call them to it.
        prefixes = [(str(path), name) for path, name in path_map if path == directory]
        prefixes += [(f"{path}/.", name) for path, name in path_map]
        options = [
            *(f"{flag}={prefix}={name}" for flag in _PREFIX_MAPS for prefix, name in prefixes),
            *(f"-D{define}" for define in defines),
            *(f"-I{_as_called(folder, path_map)}" for folder in include),
        ]

        from utvm.toolchain.object_file import fill  # Slow to import, and whoever lists boards compiles nothing.

        def compile_one(source: Path, made: Path) -> None:
            first = self.data.small_flags if source in small else ()
            chosen = (*first, *options, *(flags or {}).get(source, ()))
            command = [*compiler, *chosen, "-c", _as_called(source, path_map), "-o", made]
            run_tool(command, cwd=directory, error=ToolchainError, temporary=made.parent)
            fill(made, (contents or {}).get(source, {}))

        # Who compiles what is not trusted lets the compiler read that folder, and not the system's for such files.
        with tempfile.TemporaryDirectory(dir=directory) as folder:
            made = [Path(folder) / f"{number}.o" for number in range(len(sources))]
            with ThreadPoolExecutor(os.cpu_count()) as cores:
                for _ in cores.map(compile_one, sources, made):
                    pass
            names = [_stand_in(source, path_map) for source in sources]
            yield Objects(
                tuple(zip(made, names, strict=True)),
                (*compiler, *made, *beside, *self.data.link_flags),
                self.data.libraries,
                directory,
            )

    def source_line(self, elf: Path, address: int) -> str:
        """Return ``function at file:line`` for a code address, or an empty string where it is unknown."""
        said = run_tool(
            [self.tool("addr2line"), "-f", "-p", "-e", elf, f"{address:#x}"], error=ToolchainError
        ).strip()
        return "" if "??" in said else said


@dataclass(frozen=True)
class Objects:
    """Compiled object files, ready to be linked as often as needed.

    Attributes:
        made: object files, each with what stands for its source's path.
    """

    made: tuple[tuple[Path, str], ...]
    words: tuple[str | Path, ...]
    libraries: tuple[str, ...]
    directory: Path

    def link(
        self,
        output: Path,
        *,
        linker_script: Path | None = None,
        map_file: Path | None = None,
        options: Sequence[str] = (),
    ) -> None:
        """Link the objects into an ELF file.

        Args:
            map_file: receives the linker's map; it names sources where the linker saw objects.
        """
        script: list[str | Path] = ["-T", linker_script] if linker_script else []
        mapping = [f"-Wl,-Map,{map_file}"] if map_file else []
        run_tool(
            [*self.words, *options, *script, *mapping, *self.libraries, "-o", output],
            cwd=self.directory,
            error=ToolchainError,
            temporary=self.made[0][0].parent,
        )
        if map_file:
            text = map_file.read_text(encoding="utf-8")
            for compiled, name in self.made:
                text = text.replace(str(compiled), name)
            map_file.write_text(text, encoding="utf-8")


def _as_called(path: Path, path_map: Sequence[tuple[Path, str]]) -> str:
    """Path for the compiler's command line, with a dot after its directory.

    GCC lists a source twice in debug information, under its own name and under what stands for that, unless they
    are the same: with the dot they never are, also where the checkout lies in the directory that stands for it.
    """
    for directory, _ in reversed(path_map):
        if path.is_relative_to(directory):
            return f"{directory}/./{path.relative_to(directory).as_posix()}"
    return str(path)


def _stand_in(source: Path, path_map: Sequence[tuple[Path, str]]) -> str:
    for directory, name in reversed(path_map):
        if source.is_relative_to(directory):
            return f"{name}/{source.relative_to(directory).as_posix()}"
    return str(source)
