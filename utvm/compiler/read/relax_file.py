# SPDX-License-Identifier: Apache-2.0
"""Relax modules as TVM's JSON or Python. TVM trusts its JSON: a bounded child process reads it first."""

import json
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

from utvm.base.process.interpreter import python_command
from utvm.base.process.run import run_tool
from utvm.compiler.model import Model
from utvm.errors import CompileError, ConfigError

MAX_NODES = 1 << 20
"""Larger modules are refused: the largest network for a microcontroller has some ten thousand nodes."""

PROBE_SECONDS = 300
PROBE_BYTES = 8 << 30  # Address space; LLVM reserves several gigabytes without using them.
_PROBE = Path(__file__).with_name("relax_probe.py")


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
    try:
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
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{origin}: is not a Relax module as JSON, or a damaged one: {error}",
            "write it again with tvm.ir.save_json",
        ) from error


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
