# SPDX-License-Identifier: Apache-2.0
"""``metadata.json``: Model Library Format 7 (TVM's ``model_library_format.py``), additions under ``utvm``."""

import datetime
import hashlib
import importlib.metadata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from utvm import version
from utvm.compiler.library import Library, Placement, Tensor
from utvm.compiler.model import Model
from utvm.compiler.package.read import ALIGNMENT, Terms

VERSION = 7  # Version of Model Library Format.


@dataclass(frozen=True)
class RunStack:
    """Maximum stack of a run, without interrupts, when compiled by this compiler for this core."""

    bytes: int
    cpu: str
    compiler: str


_OWN_VERSION = 2  # Version of the keys under "utvm".
_CPU = 1  # DLPack's kDLCPU: the only device type of a microcontroller.
_TOOLS = ("apache-tvm", "apache-tvm-ffi", "numpy")


def metadata(
    library: Library, model: Model, terms: Terms, *, time: int, misra: Mapping[str, int] | None, stack: RunStack | None
) -> dict[str, object]:
    """Return the content of ``metadata.json``."""
    moment = datetime.datetime.fromtimestamp(time, datetime.timezone.utc)
    return {
        "version": VERSION,
        "modules": {
            library.name: {
                "model_name": library.name,
                "export_datetime": moment.strftime("%Y-%m-%d %H:%M:%SZ"),
                "style": "full-model",
                "target": ["c"],
                "executors": [library.executor],
                "memory": _memory(library),
                "external_dependencies": [],
            }
        },
        "utvm": _own(library, model, terms)
        | ({} if misra is None else {"misra": dict(misra)})
        | ({} if stack is None else {"stack": asdict(stack)}),
    }


def _memory(library: Library) -> dict[str, object]:
    workspaces = {call.function: 0 for call in library.calls if call.function != "memcpy"}
    for block in library.blocks:
        if block.kind == "workspace" and library.calls[block.first].function in workspaces:
            function = library.calls[block.first].function
            workspaces[function] = max(workspaces[function], block.size)
    memory: dict[str, object] = {
        "functions": {
            "main": [
                {
                    "device": _CPU,
                    # One arena that includes inputs and outputs; io_size_bytes counts these again.
                    "workspace_size_bytes": library.arena_bytes,
                    "constants_size_bytes": library.weights_bytes,
                    "io_size_bytes": sum(tensor.size_bytes for tensor in (*library.inputs, *library.outputs)),
                    "inputs": _by_name(library.inputs),
                    "outputs": _by_name(library.outputs),
                }
            ],
            "operator_functions": [
                {"function_name": function, "workspace": [{"device": _CPU, "workspace_size_bytes": size}]}
                for function, size in workspaces.items()
            ],
        }
    }
    if library.executor == "graph":
        memory["sids"] = [
            {"storage_id": number, "size_bytes": block.size}
            | ({"input_binding": block.tensor} if block.kind == "input" else {})
            for number, block in enumerate(library.blocks)
        ]
    return memory


def _by_name(tensors: Iterable[Tensor]) -> dict[str, object]:
    by_name: dict[str, object] = {}
    for number, tensor in enumerate(tensors):
        name = tensor.name if tensor.name not in by_name else f"{tensor.name}#{number}"
        by_name[name] = {"dtype": tensor.dtype, "size": tensor.size_bytes}
    return by_name


def _own(library: Library, model: Model, terms: Terms) -> dict[str, object]:
    return {
        "version": _OWN_VERSION,
        "generator": {"utvm": version.VERSION, **{package: importlib.metadata.version(package) for package in _TOOLS}},
        "model": {
            "format": model.format,
            "sha256": hashlib.sha256(model.content).hexdigest(),
            "bytes": len(model.content),
        },
        "library_sha256": library.digest,
        "sources": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(library.sources.items())},
        "target": library.target.fields,
        "regions": [
            {"name": arena.region, "bytes": arena.size_bytes, "alignment": ALIGNMENT} for arena in library.arenas
        ],
        "lower_bound_bytes": library.lower_bound_bytes,
        "inputs": _placements(library.inputs, library.input_places),
        "outputs": _placements(library.outputs, library.output_places),
        "calls": [asdict(call) for call in library.calls],
        "plan": [asdict(block) for block in library.blocks],
        "float_leftovers": [asdict(leftover) for leftover in library.leftovers],
        "licenses": {"code": terms.code_license, "weights": terms.weights_license},
    }


def _placements(tensors: Sequence[Tensor], places: Sequence[Placement]) -> list[dict[str, object]]:
    return [
        {
            "name": tensor.name,
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "bytes": tensor.size_bytes,
            "scaling": asdict(tensor.scaling) if tensor.scaling else None,
            "region": place.region,
            "offset": place.offset,
        }
        for tensor, place in zip(tensors, places, strict=True)
    ]
