# SPDX-License-Identifier: Apache-2.0
"""Compile with a cache."""

import functools
import importlib.metadata
import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from utvm import errors, runtime
from utvm.base.storage.cache import Cache, content_key, tree_digest
from utvm.base.text.quoting import printable
from utvm.compiler import bounded, names
from utvm.compiler.accelerator import AcceleratorUse, Assistant
from utvm.compiler.library import Library, Model, from_json, to_json
from utvm.compiler.memory.regions import Memory
from utvm.compiler.notes import collect_notes
from utvm.compiler.target import ANY, Storage, Target

_NOTES = logging.getLogger("utvm.compiler.notes")
NOTES = _NOTES.name
"""Log branch with the treatment of each operator, written whenever a library is requested."""

_LOG = logging.getLogger("utvm.compiler")
_FILE, _NOTED = "library.json", "notes.txt"
_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "jinja2", "numpy", "onnx", "tflite")


@dataclass(frozen=True)
class CompileOptions:
    """Options from the command line to the cache key; a target of None is the board's own CPU."""

    target: Target | None = None
    memory: Memory = field(default_factory=Memory)
    executor: Literal["aot", "graph"] = "aot"
    accelerator: AcceleratorUse = "auto"
    in_ram: bool = False


@functools.cache
def _digest_sources() -> tuple[str, str]:
    # Loaded code does not change: once a process.
    return tree_digest(Path(__file__).parent), tree_digest(runtime.PORTABLE)


def _parts(assistant: Assistant | None) -> list[str]:
    """Parts of the key of a library: the accelerator, and this compiler."""
    parts = []
    if assistant:
        request = "all" if assistant.everything else repr(assistant.cpu_cycles)
        parts += [assistant.identity, assistant.revision, request]
    return [*parts, *_digest_sources(), *map(importlib.metadata.version, _PACKAGES)]


def compile_model(
    model: Model,
    *,
    name: str | None = None,
    target: Target = ANY,
    memory: Memory | None = None,
    storage: Storage | None = None,
    executor: Literal["aot", "graph"] = "aot",
    assistant: Assistant | None = None,
) -> Library:
    """Compile a model into a library, or take it from the cache: same model, same bytes.

    Args:
        name: prefix of every global symbol of the library; by default the model's name.
        target: the CPU that kernels are chosen for; by default any. Results are the same on any CPU.
        memory: RAM regions, and tensors pinned to them; by default one region of unlimited size.
        storage: for the weights; by default unlimited.
        executor: ``aot`` calls operators directly; ``graph`` interprets a description. Same results.
        assistant: an accelerator for a part of the model; the library then requires it.
    Raises:
        CompileError: the model contains something unsupported.
        DoesNotFitError: the memory or the storage is too small.
        ConfigError: the cache is not writable, or the executor is unknown.
    """
    if executor not in ("aot", "graph"):
        raise errors.ConfigError(f"there is no executor {executor!r}", "use aot or graph")
    symbol = names.library_name(name or model.name)
    memory = memory or Memory()
    if target.goal != "speed" or target.weights_in_ram is not None:
        target = replace(target, ram_room=0)  # Boards with the same CPU share libraries.
    parts = [model.digest, symbol, repr(target), memory.text, executor, *_parts(assistant)]
    key = content_key(*parts)
    # Comparing the parts in two logs shows why a run compiled again.
    _LOG.info("%s is library %s, by %s", symbol, key[:12], parts)

    def make(directory: Path) -> None:
        # TVM takes seconds to import.
        from utvm.compiler.build import build_library
        from utvm.compiler.c.emit import prepare

        prepare()

        def build() -> tuple[str, list[str]]:
            with collect_notes() as notes:
                return to_json(build_library(model, symbol, target, memory, executor, storage, assistant)), notes

        output: list[str] = []
        text, notes = bounded.run_bounded(model.origin, "compile the model", build, output.append)
        (directory / _FILE).write_text(text, encoding="utf-8")
        lines = [*notes, *(f"TVM: {printable(line)}" for line in output)]
        (directory / _NOTED).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    entry = Cache("libraries").fetch(key, make)
    library = from_json((entry / _FILE).read_text(encoding="utf-8"))
    for line in (entry / _NOTED).read_text(encoding="utf-8").splitlines():
        _NOTES.debug("%s", line)
    if storage:
        storage.check(library.weights_bytes)
    return library
