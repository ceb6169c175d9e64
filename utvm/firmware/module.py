# SPDX-License-Identifier: Apache-2.0
"""Modules that RPC clients upload: an object, an archive of TVM's ``export_library``, or a package.

Uploads are untrusted: they are checked before they are linked, and their names never become paths.
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

from utvm import compiler, errors
from utvm.toolchain.object_file import ObjectCore, core_of, defined_names, undefined_names

_MOST_FILES = 256
_MOST_BYTES = 1 << 26
_GZIP = b"\x1f\x8b"
# Prefix of TVM's function NAME of a module (c_api.h of tvm-ffi); other uses have a third underscore.
_FUNCTION_PREFIX = "__tvm_ffi_"
_FUNCTION = re.compile(rf"\b{_FUNCTION_PREFIX}([A-Za-z]\w*)\s*\(")
# Variables of TVM's LLVM code for functions of its runtime, and those that utvm/runtime/rpc/modules.c sets.
_RUNTIME = "__TVM"
_PROVIDED = {"__TVMBackendParallelLaunch", "__TVMBackendParallelBarrier", "__TVMFFIErrorSetRaisedFromCStr"}
_UNDEFINED = re.compile(r"undefined reference to [`']([^']+)'")
_DUPLICATE = re.compile(r"multiple definition of [`']([^']+)'")
_COMPLAINT = re.compile(r"(?:[Ee]rror|warning|\bld): (?!ld returned)(?!.*in function `)(.+)")
_FORMS = "upload an object for this core, export_library's NAME.tar, or an archive of model.package"


@dataclass(frozen=True)
class Module:
    """Objects, sources or a package of a client; TVM's functions are named ``__tvm_ffi_NAME`` in the image.

    ``libraries`` has the library of a package, which clients run as ``main``.
    """

    name: str
    functions: tuple[str, ...] = ()
    objects: Mapping[str, bytes] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    libraries: tuple[compiler.Library, ...] = ()
    undefined: frozenset[str] = frozenset()


NOTHING = Module("")
"""Module of an image without an upload."""


@dataclass(frozen=True)
class Upload:
    module: Module
    folder: Path


def foreign_flags() -> tuple[str, ...]:
    """Return gcc's flags for C from TVM's compiler, with the include folders of its headers."""
    folders = []
    for package in ("tvm", "tvm_ffi"):
        spec = importlib.util.find_spec(package)  # does not import it
        folders += [Path(folder) / "include" for folder in (spec and spec.submodule_search_locations) or ()]
    return ("-std=gnu11", "-w", *(f"-isystem{folder}" for folder in folders))


def read_module(name: str, data: bytes, program: Path) -> Module:
    """Read an upload; its objects must be for the core of the image ``program``."""
    if data[:4] == b"\x7fELF":
        return _read_objects(name, {name: data}, program)
    files = _unpack(name, data)
    if "metadata.json" in files:
        # Slow to import, and rarely needed.
        from utvm.compiler.package.archive import read_package

        return Module(name, libraries=(read_package(name, files),))
    return _read_objects(name, files, program)


def _unpack(name: str, data: bytes) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    try:
        if data[:2] == _GZIP:
            data = zlib.decompressobj(wbits=31).decompress(data, _MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise errors.ConfigError(f"{name} is larger than {_MOST_BYTES} bytes when unpacked")
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                if len(files) == _MOST_FILES or member.issparse():
                    raise errors.ConfigError(f"{name} has more than {_MOST_FILES} files, or a sparse one", _FORMS)
                content = archive.extractfile(member) if member.isreg() else None
                if content is not None:
                    files[member.name.removeprefix("./")] = content.read()
    except (tarfile.TarError, zlib.error, ValueError, OSError, EOFError) as error:
        raise errors.ConfigError(f"{name} is not a module", _FORMS) from error
    return files


def _read_objects(name: str, files: Mapping[str, bytes], program: Path) -> Module:
    with program.open("rb") as file:
        board = core_of(ELFFile(file))
    objects: dict[str, bytes] = {}
    sources: dict[str, str] = {}
    functions: dict[str, None] = {}
    undefined: set[str] = set()
    for number, (file_name, data) in enumerate(files.items()):
        if data[:4] == b"\x7fELF":
            objects[f"module_{number}.o"] = data
            label = file_name if file_name == name else f"{name}: {file_name}"
            defined, names = _read_names(label, data, board)
            functions |= dict.fromkeys(defined)
            undefined |= names
        elif file_name.endswith(".c"):
            text = data.decode("utf-8", "replace")
            sources[f"module_{number}.c"] = text
            functions |= dict.fromkeys(_FUNCTION.findall(text))
    if not objects and not sources:
        raise errors.ConfigError(f"{name} is not a module: it has neither an object nor C", _FORMS)
    if not functions:
        raise errors.ConfigError(
            f"{name} has no function that can be called: none is named {_FUNCTION_PREFIX}NAME",
            "give the functions a global_symbol before tvm.compile",
        )
    return Module(name, tuple(functions), objects, sources, undefined=frozenset(undefined))


def _read_names(label: str, data: bytes, board: ObjectCore) -> tuple[list[str], set[str]]:
    # pyelftools raises many kinds for damaged files.
    with errors.ConfigError.on(Exception, f"{label} is a damaged object", _FORMS):
        elf = ELFFile(io.BytesIO(data))
        kind, misfit, names = elf["e_type"], core_of(elf).misfit(board), defined_names(elf)
        undefined = undefined_names(elf)
    if kind != "ET_REL":
        raise errors.ConfigError(f"{label} is already linked, not an object", _FORMS)
    if misfit:
        raise errors.ConfigError(f"{label} is for another core: {misfit}", "compile it for this board")
    if missing := sorted(name[2:] for name in names if name.startswith(_RUNTIME) and name not in _PROVIDED):
        raise _missing_symbols(label, missing)
    functions = (name for name, kind in names.items() if kind == "STT_FUNC")
    compiled = (re.fullmatch(f"{_FUNCTION_PREFIX}([A-Za-z][A-Za-z0-9_]*)", name) for name in functions)
    return [match[1] for match in compiled if match], undefined


def _missing_symbols(label: str, names: Sequence[str]) -> errors.ConfigError:
    return errors.ConfigError(
        f"{label} needs symbols that the board lacks: {', '.join(names[:8])}", "define them, or do without them"
    )


def link_error(module: Module, error: errors.ToolchainError) -> errors.ConfigError:
    if missing := list(dict.fromkeys(_UNDEFINED.findall(error.message))):
        return _missing_symbols(module.name, missing)
    if duplicates := list(dict.fromkeys(_DUPLICATE.findall(error.message))):
        return errors.ConfigError(
            f"{module.name} defines symbols of the firmware again: {', '.join(duplicates[:8])}", "rename them"
        )
    complaint = _COMPLAINT.search(error.message)
    message = complaint[1] if complaint else error.message.splitlines()[-1]
    return errors.ConfigError(f"{module.name} cannot be linked: {message}", "compile it for this board")
