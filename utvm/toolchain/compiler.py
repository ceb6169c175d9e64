# SPDX-License-Identifier: Apache-2.0
"""Cross compilers as data: one YAML file per toolchain, one row per CPU."""

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

from utvm import errors, paths
from utvm.base.process import run_tool, version_of
from utvm.base.storage.config import Record, load_yaml

__all__ = ["DIRECTORY", "OWN_ROWS", "Cpu", "Objects", "Toolchain", "ToolchainFile"]

DIRECTORY = paths.DATA / "toolchains"
OWN_ROWS = "toolchain.yaml"
"""File of a board's folder with additional CPU rows."""

_PREFIX_MAPS = ("-ffile-prefix-map", "-Wa,--debug-prefix-map")
_KEYS_OF_ROWS = "docs/porting.md, step 1, describes a row"


class Cpu(Record):
    """A row of a toolchain file: the flags for one core with its floating-point unit.

    ``architecture`` is the runtime folder with its start-up code, ``core`` the vendor's name. ``extensions`` may
    be used by kernels beyond plain C: ``dsp`` is Arm's DSP extension (dual 16-bit multiply-accumulate), ``mve``
    and ``neon`` its vectors of 16 bytes, ``fpu`` a float32 unit with 32 registers; unknown ones are ignored.
    ``traps`` are program errors that fault on this CPU, but not on every one. ``breakpoint_kind`` is the GDB
    protocol's kind of breakpoint in its code: for Arm, 2 is Thumb, 4 is not. ``handler_stack`` is the stack in
    bytes of its fault handler and of everything else on the same stack. ``tells_faults``: the CPU reports the
    cause of a fault. ``stack_guard`` detects stack overflow: a region of the memory protection unit, or a limit of
    the stack pointer.
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

    ``c_flags`` are for all C; ``small_flags`` follow them for code optimised for size.
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
        beside: a folder that may have :data:`OWN_ROWS` with additional rows.
    """

    def __init__(self, name: str, beside: Path | None = None) -> None:
        self.path = DIRECTORY / f"{name}.yaml"
        stamp = self.path.stat() if self.path.is_file() else None
        # Hundreds of boards share one file.
        self.data = _read(self.path, (stamp.st_mtime_ns, stamp.st_size) if stamp else ())
        self.name = self.data.name
        self.files: tuple[Path, ...] = (self.path,)
        own = beside / OWN_ROWS if beside else None
        if own and own.is_file():
            self.files += (own,)
            rows = load_yaml(own, _Rows, _KEYS_OF_ROWS).cpus
            if double := sorted(rows.keys() & self.data.cpus.keys()):
                message = f"{own}: cpus: {self.path} has a row {double[0]!r} too"
                raise errors.ConfigError(message, "give yours another name")
            self.data = self.data.model_copy(update={"cpus": {**self.data.cpus, **rows}})

    def cpu(self, name: str) -> Cpu:
        try:
            return self.data.cpus[name]
        except KeyError:
            rows = ", ".join(self.data.cpus)
            hint = f"rows it has: {rows}; put your own in a {OWN_ROWS} beside your board.yaml"
            raise errors.ConfigError(f"{self.path}: cpus has no row {name!r}", hint) from None

    def tool(self, name: str) -> Path:
        path = shutil.which(self.data.prefix + name)
        if path is None:
            raise errors.ToolchainError(
                f"{self.data.prefix}{name} is not installed", f"sudo apt-get install {' '.join(self.data.packages)}"
            )
        return Path(path)

    @functools.cached_property
    def version(self) -> str:
        return version_of([self.tool("gcc"), "--version"], error=errors.ToolchainError)

    @contextlib.contextmanager
    def compile_objects(
        self,
        directory: Path,
        sources: Sequence[Path],
        *,
        cpu: str,
        include: Sequence[Path],
        defines: Sequence[str] = (),
        path_map: Sequence[tuple[Path, str]] = (),
        small: Collection[Path] = (),
        compiled: Mapping[Path, Path] | None = None,
        contents: Mapping[Path, Mapping[str, bytes]] | None = None,
        flags: Mapping[Path, Sequence[str]] | None = None,
        beside: Sequence[str | Path] = (),
    ) -> Iterator["Objects"]:
        """Compile C and assembler sources on all cores; the objects exist during the ``with`` block.

        Args:
            path_map: directories and their replacements in debug information, so that the output does not depend
                on the checkout's path.
            small: sources to optimise for size.
            compiled: objects that exist already, by source.
            contents: contents of constants that are filled in after compilation, by source.
            flags: additional flags by source, after all others.
            beside: objects compiled elsewhere, and linker options.
        """
        compiler: list[str | Path] = [self.tool("gcc"), *self.cpu(cpu).flags, *self.data.c_flags]
        # The last match wins: one directory may be inside another.
        path_map = sorted(path_map, key=lambda entry: len(str(entry[0])))
        options = _options(directory, include, defines, path_map)

        from utvm.toolchain.object_file import fill  # Slow to import, and listing boards compiles nothing.

        def compile_one(source: Path, object_file: Path) -> None:
            if compiled and source in compiled:
                shutil.copyfile(compiled[source], object_file)
                return
            first = self.data.small_flags if source in small else ()
            flags_used = (*first, *options, *(flags or {}).get(source, ()))
            command = [*compiler, *flags_used, "-c", _path_for_compiler(source, path_map), "-o", object_file]
            run_tool(command, cwd=directory, error=errors.ToolchainError, temporary=object_file.parent)
            fill(object_file, (contents or {}).get(source, {}))

        # A confined compiler may read this folder, but not the system's temporary folder.
        with tempfile.TemporaryDirectory(dir=directory) as folder:
            object_file = [Path(folder) / f"{number}.o" for number in range(len(sources))]
            with ThreadPoolExecutor(os.cpu_count()) as cores:
                for _ in cores.map(compile_one, sources, object_file):
                    pass
            names = [mapped_name(source, path_map) for source in sources]
            yield Objects(
                tuple(zip(object_file, names, strict=True)),
                (*compiler, *object_file, *beside, *self.data.link_flags),
                self.data.libraries,
                directory,
            )

    def source_line(self, elf: Path, address: int) -> str:
        """Return ``function at file:line`` for a code address; empty if unknown."""
        message = run_tool(
            [self.tool("addr2line"), "-f", "-p", "-e", elf, f"{address:#x}"], error=errors.ToolchainError
        ).strip()
        return "" if "??" in message else message


@dataclass(frozen=True)
class Objects:
    """Compiled object files, ready to be linked repeatedly; ``files``: they and their sources' mapped paths."""

    files: tuple[tuple[Path, str], ...]
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
            error=errors.ToolchainError,
            temporary=self.files[0][0].parent,
        )
        if map_file:
            text = map_file.read_text(encoding="utf-8")
            for compiled, name in self.files:
                text = text.replace(str(compiled), name)
            map_file.write_text(text, encoding="utf-8")


def _options(
    directory: Path, include: Sequence[Path], defines: Sequence[str], path_map: Sequence[tuple[Path, str]]
) -> list[str]:
    # The compiler's own folder under its own name, the others as on our command line.
    prefixes = [(str(path), name) for path, name in path_map if path == directory]
    prefixes += [(f"{path}/.", name) for path, name in path_map]
    return [
        *(f"{flag}={prefix}={name}" for flag in _PREFIX_MAPS for prefix, name in prefixes),
        *(f"-D{define}" for define in defines),
        *(f"-I{_path_for_compiler(folder, path_map)}" for folder in include),
    ]


def _path_for_compiler(path: Path, path_map: Sequence[tuple[Path, str]]) -> str:
    """Return a path for the compiler's command line, with a dot after its directory.

    GCC lists a source twice in debug information, under its own and its mapped name, unless they are equal: the
    dot makes them always differ, even for a checkout in the mapped directory.
    """
    for directory, _ in reversed(path_map):
        if path.is_relative_to(directory):
            return f"{directory}/./{path.relative_to(directory).as_posix()}"
    return str(path)


def mapped_name(source: Path, path_map: Sequence[tuple[Path, str]]) -> str:
    """Return a source's name in debug information; of several directories in ``path_map``, the last one counts."""
    for directory, name in reversed(path_map):
        if source.is_relative_to(directory):
            return f"{name}/{source.relative_to(directory).as_posix()}"
    return str(source)
