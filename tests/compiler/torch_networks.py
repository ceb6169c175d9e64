# SPDX-License-Identifier: Apache-2.0
"""Networks of torchvision, timm and torchaudio with random weights, exported, imported and compared with PyTorch.

    python tests/compiler/torch_networks.py [RESULTS [WORD]]

tries the networks of ``torch_networks.yaml``, or those whose name contains WORD, that are not yet in RESULTS, and
writes docs/torch-networks.md.
"""

import importlib
import json
import logging
import multiprocessing
import os
import platform
import resource
import signal
import sys
import time
import warnings
from dataclasses import dataclass, field
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import yaml

_LIST = Path(__file__).with_suffix(".yaml")
_PAGE = Path(__file__).parents[2] / "docs" / "torch-networks.md"
_SECONDS = 600  # Of processor time.
_LIBRARIES: list[Any] = []
_EPSILON = 1e-3  # Of the largest magnitude: libraries sum in other orders, and these networks are deep.
_HEAD = """# Networks of PyTorch's libraries

Networks as {libraries} define them, with random weights, in evaluation mode:
exported by `torch.export` (PyTorch {torch}) and imported; the small ones also run in utvm's float library on this
computer beside PyTorch. *right*: the outputs agree to 1/1000 of the largest. *imported*: every operator and
argument is known, and each result has the shape and type that PyTorch states; not run.
`tests/compiler/torch_networks.py` writes this page. Small pictures and, where the definition allows it, few layers
save time; options are listed. Detection networks (`fasterrcnn`, `ssd`, `retinanet`) are not in the list:
`torch.export` does not export them, as the number of their boxes depends on values, nor
torchaudio's Conformer, which makes a shape of a length that is an input.

"""


@dataclass
class Network:
    """A line of the list."""

    library: str
    name: str
    shapes: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    runs: bool = False
    refused: bool = False

    @property
    def case(self) -> str:
        return f"{self.library}.{self.name}"

    def build(self) -> Any:
        module = importlib.import_module(self.library)
        if self.library == "timm":
            return module.create_model(self.name, pretrained=False, **self.options)
        if self.library == "torchvision.models":
            return module.get_model(self.name, **self.options)
        return getattr(module, self.name)(**self.options)

    def inputs(self) -> tuple[Any, ...]:
        import torch

        tensors = []
        for shape in self.shapes:
            sizes = [int(size) for size in shape.removeprefix("i").split("x")]
            sizes = [1, 3, *sizes * 2] if len(sizes) == 1 and not shape.startswith("i") else sizes
            is_integer = shape.startswith("i")
            tensors.append(torch.full(sizes, 20) if is_integer else torch.randn(sizes))
        return tuple(tensors)


def networks() -> list[Network]:
    result = []
    for library, lines in yaml.safe_load(_LIST.read_text(encoding="utf-8")).items():
        for line in lines:
            name, *options = line.split()
            network = Network(library, name, runs="run" in options, refused="refused" in options)
            for option in options:
                key, equal, value = option.partition("=")
                if equal:
                    network.options[key] = yaml.safe_load(value)
                elif option not in ("run", "refused"):
                    network.shapes.append(option)
            result.append(network)
    return result


def build_with_random_weights(network: Network) -> Any:
    """The network with random weights only: a layer with zero weights would hide earlier errors."""
    import torch

    torch.manual_seed(0)
    module = network.build().eval()
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if not tensor.is_floating_point() or tensor.numel() < 2 or tensor.min() != tensor.max():
                continue
            if isinstance(tensor, torch.nn.Parameter) or name.endswith("running_mean"):
                tensor.add_(torch.randn_like(tensor), alpha=0.1)
            elif name.endswith("running_var"):
                tensor.mul_(0.75 + 0.5 * torch.rand_like(tensor))
    return module


def flatten(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [part for item in value for part in flatten(item)] if isinstance(value, list | tuple) else [value]


def judge(network: Network) -> str:
    """Result: right, imported, refused with the reason, not exported, or wrong."""
    import torch

    from utvm.compiler import reference
    from utvm.compiler.read.exported_file import from_torch
    from utvm.errors import UtvmError

    torch.set_num_threads(1)
    module = build_with_random_weights(network)
    inputs = network.inputs()
    try:
        program = torch.export.export(module, inputs)
    except Exception as error:  # any exception of PyTorch
        return f"not exported: {type(error).__name__}: {str(error)[:100]}"
    try:
        model = from_torch(program, network.name)
        if not network.runs:
            return "imported"
        results = reference(model)([tensor.numpy() for tensor in inputs])
    except UtvmError as error:
        return f"refused: {error.message}"
    with torch.no_grad():
        expected = [item.numpy() for item in flatten(module(*inputs)) if item is not None]
    return _difference(results, expected) or "right"


def _difference(results: list[Any], expected: list[Any]) -> str:
    if [item.shape for item in results] != [item.shape for item in expected]:
        return f"wrong: shapes {[item.shape for item in results]} for {[item.shape for item in expected]}"
    for result, golden in zip(results, expected, strict=True):
        if golden.dtype.kind == "f" and not (np.isfinite(golden).all() and np.ptp(golden) > 0):
            return "wrong: PyTorch's own output says nothing"
        distance = np.abs(result.astype(float) - golden.astype(float)).max()
        if not distance <= _EPSILON * np.abs(golden).max():
            return f"wrong: apart by {distance:g} of {np.abs(golden).max():g}"
    return ""


def _send(network: Network, connection: Connection) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS + 5))
    try:
        connection.send(judge(network))
    except Exception as error:
        connection.send(f"wrong: internal error {error!r}"[:300])


def judge_in_time(network: Network) -> str:
    """Like :func:`judge`, in a process of its own with a time limit."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_send, args=(network, sender))
    process.start()
    sender.close()
    try:
        return str(receiver.recv())
    except EOFError:
        process.join()
        late = process.exitcode == -signal.SIGXCPU
        return f"unfinished: not within {_SECONDS} s of processor time" if late else "wrong: a crash"
    finally:
        process.kill()
        process.join()


def warm_up() -> None:
    """Import libraries and fill PyTorch's caches once, for all forked processes."""
    import torch

    if platform.machine() == "x86_64" and "+cpu" in torch.__version__ and "+cpu" not in version("torchvision"):
        # With PyTorch's CPU build, PyPI's torchvision lacks its operators; its import needs two of them.
        _LIBRARIES.append(torch.library.Library("torchvision", "DEF"))
        for name in ("nms", "qnms"):
            _LIBRARIES[0].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

    from utvm.compiler import host  # noqa: F401
    from utvm.compiler.read.exported_file import from_torch

    torch.set_num_threads(1)
    layers = (
        torch.nn.Conv2d(3, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.LayerNorm(8),
        torch.nn.Linear(8, 4),
    )
    from_torch(torch.export.export(torch.nn.Sequential(*layers).eval(), (torch.randn(1, 3, 10, 10),)), "first")


def page(results: dict[str, str], versions: dict[str, str]) -> str:
    counts: dict[str, int] = {}
    for result in results.values():
        kind = result.partition(":")[0]
        counts[kind] = counts.get(kind, 0) + 1
    libraries = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "torch")
    rows = [
        f"| {network.case} | {' '.join(network.shapes)} | "
        f"{' '.join(f'{key}={value}' for key, value in network.options.items())} | {results[network.case]} |"
        for network in networks()
        if network.case in results
    ]
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    total = f"{len(results)} of {len(networks())} networks in the list were tried: {kinds}."
    head = _HEAD.format(libraries=libraries, torch=versions["torch"])
    return head + total + "\n\n| network | input | options | result |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def main(cache: str, word: str = "") -> None:
    warm_up()
    cache_file = Path(cache)
    results = json.loads(cache_file.read_text()) if cache_file.exists() else {}
    for network in networks():
        if network.case not in results and word in network.case:
            start = time.time()
            results[network.case] = " ".join(judge_in_time(network).split()).replace("|", "\\|")[:240]
            print(network.case, results[network.case], f"{time.time() - start:.0f} s", flush=True)
            cache_file.write_text(json.dumps(results, indent=0))
    names = "torchvision", "timm", "torchaudio", "torch"
    versions = {name: version(name).partition("+")[0] for name in names}
    _PAGE.write_text(page(results, versions), encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(*sys.argv[1:])
