# SPDX-License-Identifier: Apache-2.0
"""Models exported as programs: Relax modules (TVM's JSON or Python) and ``torch.export``'s archives.

TVM trusts its JSON: a bounded child process reads it first. PyTorch is an optional extra, used only here.
"""

import io
import json
import logging
import runpy
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from utvm.base.process import run_tool
from utvm.base.process.interpreter import python_command
from utvm.compiler.library import Model
from utvm.compiler.refusal import tvm_errors
from utvm.errors import CompileError, ConfigError

MAX_NODES = 1 << 20
"""Larger modules are refused: the largest network for a microcontroller has some ten thousand nodes."""

PROBE_SECONDS = 300
PROBE_BYTES = 8 << 30  # Address space; LLVM reserves several gigabytes without using them.
_PROBE = Path(__file__).with_name("relax_probe.py")
_LOG = logging.getLogger("utvm.compiler")
_MARK = b"quantized_decomposed"  # In the archive of a PT2E-quantised program.
ARCHIVE = b"PK\x03\x04"  # First bytes of a ZIP archive, as torch.export.save writes it.
MAX_UNPACKED_BYTES = 1 << 28
# Every archive contains one of them (PyTorch before 2.8, and since).
MARKS = ("serialized_exported_program.json", "archive_format")


def is_relax_json(content: bytes) -> bool:
    """True if a file claims to be a Relax module as TVM's JSON."""
    return content.lstrip()[:1] == b"{" and b'"root_index"' in content


def from_module(module: Any, name: str) -> Model:
    import tvm

    return Model(name, f"Relax module {name}", "relax", str(tvm.ir.save_json(module)).encode())


def from_json(content: bytes, name: str, origin: str) -> Model:
    _check_structure(content, origin)
    _probe(content, origin)
    return Model(name, origin, "relax", content)


def from_python(path: Path, name: str, origin: str) -> Model:
    """Run a Python file as ``utvm_model`` with the user's rights; return the only ``tvm.IRModule`` global."""
    import tvm

    try:
        names = runpy.run_path(str(path), run_name="utvm_model")
    except (Exception, SystemExit) as error:  # whatever its author wrote
        raise CompileError(f"{origin}: raises {type(error).__name__}: {error}", "run it with Python") from error
    modules = {key: value for key, value in names.items() if isinstance(value, tvm.ir.IRModule)}
    if len({id(value) for value in modules.values()}) != 1:
        listing = ", ".join(modules) or "none"
        raise CompileError(f"{origin}: must define one Relax module, but defines {listing}")
    return replace(from_module(next(iter(modules.values())), name), origin=origin)


def _check_structure(content: bytes, origin: str) -> None:
    with ConfigError.on(
        (ValueError, KeyError, TypeError, AttributeError, RecursionError),
        f"{origin}: is not a Relax module as JSON, or a damaged one:",
        "write it again with tvm.ir.save_json",
    ):
        document = json.loads(content.decode())
        nodes = document["nodes"]
        root = document["root_index"]
        if not isinstance(nodes, list) or not isinstance(root, int) or isinstance(root, bool):
            raise TypeError("nodes or root of the wrong kind")
        if not 0 <= root < len(nodes) <= MAX_NODES:
            raise ValueError(f"root {root} of {len(nodes)} nodes")
        if nodes[root].get("type") != "ir.IRModule":
            raise ValueError("it holds no module")
        for number, node in enumerate(nodes):
            _check_node(number, node)


def _check_node(number: int, node: dict[str, object]) -> None:
    """Check a node: a reference to itself or to a later node would be a cycle."""
    kind, data = node["type"], node.get("data")
    if not isinstance(kind, str):
        raise TypeError(f"node {number} has no type")
    if kind in ("ffi.Array", "ffi.Map", "ffi.List", "ffi.Dict"):
        if not isinstance(data, list):
            raise TypeError(f"node {number} is not a list")
        references = data
    elif isinstance(data, dict):
        # Numbers in a record are references or plain numbers; only TVM knows which.
        references = []
    else:
        return
    for reference in references:
        if not isinstance(reference, int) or not 0 <= reference < number:
            raise ValueError(f"node {number} refers to {reference!r}, which does not come before it")


def _probe(content: bytes, origin: str) -> None:
    hint = "write it again with tvm.ir.save_json, with the version of TVM that is used here"
    try:
        command = python_command(str(_PROBE), str(PROBE_BYTES))
        run_tool(command, stdin=content.decode(), timeout=PROBE_SECONDS, error=CompileError)
    except CompileError as error:
        reason = error.message.splitlines()[-1].strip()[:300]
        raise CompileError(f"{origin}: TVM could not read the module: {reason}", hint) from error


def from_torch(program: Any, name: str) -> Model:
    origin = f"PyTorch model {name}"
    with tvm_errors(origin, "read the model"):
        from utvm.compiler.read.torch_program import import_program

        return from_module(import_program(program), name)


def from_archive(content: bytes, name: str, origin: str) -> Model:
    """Load an archive of ``torch.export.save``. It may unpickle, which runs code: only with the user's consent."""
    try:
        import torch
    except ImportError as error:
        raise ConfigError(
            f"{origin}: is a PyTorch model, and PyTorch is not installed", "install the extra: pip install .[torch]"
        ) from error
    if _MARK in content:
        _know_quantisation(origin)
    # It logs tracebacks for its own developers.
    output = logging.getLogger("torch.export")
    before, output.disabled = output.disabled, True
    try:
        program = torch.export.load(io.BytesIO(content))
    except Exception as error:  # PyTorch raises nearly every built-in kind
        _LOG.debug("%s cannot be read: %r", origin, error)
        raise CompileError(
            f"{origin}: is damaged, or of another version of PyTorch",
            "export the model again; --log-level debug logs PyTorch's message",
        ) from error
    finally:
        output.disabled = before
    model = from_torch(program, name)
    return Model(name, origin, model.format, model.content)


def _know_quantisation(origin: str) -> None:
    try:
        import torchao.quantization.pt2e  # noqa: F401  # It registers them.
    except ImportError as error:
        raise ConfigError(
            f"{origin}: is quantised by torchao, which is not installed", "install the extra: pip install .[torch]"
        ) from error


def check_archive(content: bytes, origin: str) -> None:
    """Check that an archive is one of ``torch.export`` before anything is unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise ConfigError(f"{origin}: is a damaged archive, or only a part of one", "export the model again") from error
    if not any(member.filename.endswith(MARKS) for member in members):
        raise ConfigError(
            f"{origin}: is an archive, but not one that torch.export.save wrote",
            "export the model with torch.export.save, or as ONNX or TFLite",
        )
    if sum(member.file_size for member in members) > MAX_UNPACKED_BYTES:
        raise ConfigError(f"{origin}: is too large for any board")
