# SPDX-License-Identifier: Apache-2.0
"""What a client may upload for a board: an object, what TVM's ``export_library`` writes, or a package of ours.

Whoever sent it is not known: it is looked at before anything is made of it, and what it is called becomes no path.
"""

import importlib.util
import io
import re
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elftools.elf.elffile import ELFFile

from utvm.compiler import Library
from utvm.errors import ConfigError, ToolchainError
from utvm.toolchain.object_file import ObjectCore, core_of, defined_names, wanted_names

_MOST_FILES = 256
_MOST_BYTES = 1 << 26
_GZIP = b"\x1f\x8b"
# What TVM's compiler calls a function NAME of a module (c_api.h of tvm-ffi); with one more underscore, it is none.
_COMPILED = "__tvm_ffi_"
_FUNCTION = re.compile(rf"\b{_COMPILED}([A-Za-z]\w*)\s*\(")
# Variables in LLVM's code of TVM's, for functions of its runtime; and those that utvm/runtime/rpc/modules.c sets.
_RUNTIME = "__TVM"
_HAS = {
    "__TVMBackendParallelLaunch",
    "__TVMBackendParallelBarrier",
    "__TVMFFIErrorSetRaisedFromCStr",
}
_UNDEFINED = re.compile(r"undefined reference to [`']([^']+)'")
_TWICE = re.compile(r"multiple definition of [`']([^']+)'")
_COMPLAINT = re.compile(r"(?:[Ee]rror|warning|\bld): (?!ld returned)(?!.*in function `)(.+)")
_FORMS = "an object for this core, export_library's NAME.tar, or an archive of model.package"


@dataclass(frozen=True)
class Module:
    """What is linked into an image for a client.

    Attributes:
        name: what the client called it.
        functions: of TVM's compiler, which take tensors; an image has each as ``__tvm_ffi_NAME``.
        objects: file name, of our own, to an object file.
        sources: likewise to C of TVM's compiler.
        libraries: that of a package, at most one; clients run it as ``main``.
        wanted: names that its objects take from elsewhere.
    """

    name: str
    functions: tuple[str, ...] = ()
    objects: Mapping[str, bytes] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    libraries: tuple[Library, ...] = ()
    wanted: frozenset[str] = frozenset()


NOTHING = Module("")
"""What an image has that no client has uploaded anything for."""


@dataclass(frozen=True)
class Upload:
    """A module, and the folder for its image."""

    module: Module
    folder: Path


def foreign_flags() -> tuple[str, ...]:
    """Return gcc's flags for C of TVM's compiler, which is not as strict as ours: where its headers are, too."""
    folders = []
    for package in ("tvm", "tvm_ffi"):
        found = importlib.util.find_spec(package)  # which does not import it
        folders += [Path(place) / "include" for place in (found and found.submodule_search_locations) or ()]
    return ("-std=gnu11", "-w", *(f"-isystem{folder}" for folder in folders))


def read_module(name: str, data: bytes, program: Path) -> Module:
    """Read what a client has uploaded.

    Args:
        name: what the client called it.
        program: an image for the board, whose core objects must be for.
    """
    if data[:4] == b"\x7fELF":
        return _compiled(name, {name: data}, program)
    files = _unpacked(name, data)
    if "metadata.json" in files:
        # Packages are read by few, and what that takes is slow to import.
        from utvm.compiler.package.read import read_package

        return Module(name, libraries=(read_package(name, files),))
    return _compiled(name, files, program)


def _unpacked(name: str, data: bytes) -> dict[str, bytes]:
    """Return the files of an archive, which may be compressed by gzip."""
    files: dict[str, bytes] = {}
    try:
        if data[:2] == _GZIP:
            data = zlib.decompressobj(wbits=31).decompress(data, _MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ConfigError(f"{name} is more than {_MOST_BYTES} bytes when it is unpacked")
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                if len(files) == _MOST_FILES or member.issparse():
                    raise ConfigError(f"{name} has more than {_MOST_FILES} files in it, or one with holes", _FORMS)
                content = archive.extractfile(member) if member.isreg() else None
                if content is not None:
                    files[member.name.removeprefix("./")] = content.read()
    except (tarfile.TarError, zlib.error, ValueError, OSError, EOFError) as error:
        raise ConfigError(f"{name} is no module", _FORMS) from error
    return files


def _compiled(name: str, files: Mapping[str, bytes], program: Path) -> Module:
    with program.open("rb") as file:
        board = core_of(ELFFile(file))
    objects: dict[str, bytes] = {}
    sources: dict[str, str] = {}
    functions: dict[str, None] = {}
    wanted: set[str] = set()
    for number, (file_name, data) in enumerate(files.items()):
        if data[:4] == b"\x7fELF":
            objects[f"module_{number}.o"] = data
            called = file_name if file_name == name else f"{name}: {file_name}"
            found, names = _names_of(called, data, board)
            functions |= dict.fromkeys(found)
            wanted |= names
        elif file_name.endswith(".c"):
            text = data.decode("utf-8", "replace")
            sources[f"module_{number}.c"] = text
            functions |= dict.fromkeys(_FUNCTION.findall(text))
    if not objects and not sources:
        raise ConfigError(f"{name} is no module: neither an object nor C is in it", _FORMS)
    if not functions:
        raise ConfigError(
            f"{name} has no function that could be called: none is named {_COMPILED}NAME",
            "tvm.compile makes them of functions with a global_symbol",
        )
    return Module(name, tuple(functions), objects, sources, wanted=frozenset(wanted))


def _names_of(called: str, data: bytes, board: ObjectCore) -> tuple[list[str], set[str]]:
    """Return the functions of an object for a board's core, and what it takes from elsewhere."""
    try:
        elf = ELFFile(io.BytesIO(data))
        kind, misfit, names = elf["e_type"], core_of(elf).misfit(board), defined_names(elf)
        taken = wanted_names(elf)
    except Exception as error:  # What a damaged one can make its reader raise is nobody's list.
        raise ConfigError(f"{called} is a damaged object", _FORMS) from error
    if kind != "ET_REL":
        raise ConfigError(f"{called} is linked already, and no object", _FORMS)
    if misfit:
        raise ConfigError(f"{called} is for another core: {misfit}", "compile it for this board")
    if wanted := sorted(each[2:] for each in names if each.startswith(_RUNTIME) and each not in _HAS):
        raise _needs(called, wanted)
    functions = (each for each, kind in names.items() if kind == "STT_FUNC")
    compiled = (re.fullmatch(f"{_COMPILED}([A-Za-z][A-Za-z0-9_]*)", each) for each in functions)
    return [found[1] for found in compiled if found], taken


def _needs(called: str, wanted: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"{called} needs what the board has not: {', '.join(wanted[:8])}", "bring it along, or do without it"
    )


def link_error(module: Module, error: ToolchainError) -> ConfigError:
    """Say in one line why a module could not be compiled or linked."""
    if wanted := list(dict.fromkeys(_UNDEFINED.findall(error.message))):
        return _needs(module.name, wanted)
    if twice := list(dict.fromkeys(_TWICE.findall(error.message))):
        return ConfigError(
            f"{module.name} brings what the firmware has already: {', '.join(twice[:8])}", "give it another name"
        )
    said = _COMPLAINT.search(error.message)
    words = said[1] if said else error.message.splitlines()[-1]
    return ConfigError(f"{module.name} cannot be made part of an image: {words}", "is it for this board?")
