# SPDX-License-Identifier: Apache-2.0
"""Programs of one ATen overload with random arguments equal PyTorch, or are refused.

The overloads are those of the importer's table and those that PyTorch decomposes. Arguments are drawn by type;
PyTorch rejects invalid ones.

    python tests/compiler/torch_draw.py FIRST LAST

judges the seeds from FIRST to LAST and prints a line per program: result, seed, overload, call and reason.
"""

import functools
import logging
import multiprocessing
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from utvm.compiler.read import exported_file

COUNT = 50  # Number of programs per seed.
SHAPES = ((2, 3, 4), (3, 4), (4,), (1, 4, 6, 6), (4, 4, 3, 3), (2, 3), (4, 2, 5), (1, 2, 7), (), (1, 4, 3, 4, 5))
SIZES = ([2], [3], [2, 2], [3, 2], [1, 1], [0, 1], [5, 7], [1, 0, 2], [2, 12], [-1], [4, 3], [1, 2, 2, 1], [2, 2, 2])
_POOLS: dict[str, Any] = {
    **dict.fromkeys(("int", "SymInt"), (0, 1, -1, 2, 3, 1)),
    **dict.fromkeys(("List[int]", "List[SymInt]"), SIZES),
    "float": (0.5, 1.0, 2.0, 1.7, -1.5, 0.1),
    "List[float]": ([0.5], [2.0], [1.7], [2.0, 0.5], [1.7, 2.0]),
    **dict.fromkeys(("number", "Scalar"), (2, 3.5, -1, 0.3, 1, -2)),
    "bool": (True, False),
    "str rounding_mode": ("floor", "trunc"),
    "str approximate": ("none", "tanh"),
    "str reduce": ("sum", "amax", "amin", "prod", "mean"),
    "int dtype": ("float32", "int64", "int32"),  # Schemas call a type an integer; PyTorch crashes on most integers.
    "int reduction": (0, 1, 2),
    "int layout": None,
    "int memory_format": None,
}
"""Values by type, or by type and name."""
_SKIPPED = (
    "as_tensor",
    "backward",
    "choose_qparams",
    "cudnn",
    "empty",
    "fbgemm",
    "foreach",
    "fused",
    "histogramdd",
    "miopen",
    "mkldnn",
    "mps",
    "native_batch_norm",  # It reads beyond weights of other sizes, and crashes.
    "nested",
    "pin_memory",
    "quantize",
    "rand",
    "resize",
    "sparse",
    "storage",
    "sym_",
    "unflatten_dense",
    "vulkan",
    "xnnpack",
)
"""Parts of names: gradients, other devices and layouts, random numbers, and uninitialised memory."""


@functools.cache
def arguments() -> dict[str, list[str]]:
    """The importer's table: operator to the names of arguments."""
    rows = yaml.safe_load(Path(exported_file.__file__).with_name("torch_arguments.yaml").read_text())["arguments"]
    return {item.partition("/")[0]: re.findall(r"\w+", key) for key, items in rows.items() for item in items.split()}


def aten(name: str) -> Any:
    """An overload by its name in the table."""
    import torch

    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


@functools.cache
def overloads() -> list[Any]:
    """ATen's deterministic, pure overloads that compute tensors from tensors."""
    import torch

    from utvm.compiler.read.torch_rules import decompositions

    known = {*map(aten, arguments()), *decompositions()}
    tags = {torch.Tag.nondeterministic_seeded, torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
    selected = []
    for schema in sorted(torch._C._jit_get_all_schemas(), key=str):
        packet = schema.name.removeprefix("aten::")
        if not schema.name.startswith("aten::") or packet[0] == "_" or any(word in packet for word in _SKIPPED):
            continue
        overload = getattr(getattr(torch.ops.aten, packet, None), schema.overload_name or "default", None)
        if not isinstance(overload, torch._ops.OpOverload) or not torch._C._dispatch_has_kernel(overload.name()):
            continue
        is_composite = overload.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
        if not (overload in known or is_composite) or schema.is_mutable or tags & set(overload.tags):
            continue
        if str(schema.returns[0].type) not in ("Tensor", "List[Tensor]") or "out" in schema.overload_name:
            continue
        if any("Tensor" in str(item.type) for item in schema.arguments):
            selected.append(overload)
    return selected


class Draw:
    """An overload with arguments; ``tensors`` are the program's inputs."""

    def __init__(self, overload: Any, random: np.random.Generator) -> None:
        self.overload, self._random = overload, random
        self.tensors: list[Any] = []
        self.dtype = random.choice(["float32"] * 5 + ["int32", "int64", "bool"])
        self.shape = SHAPES[random.integers(len(SHAPES))]
        self.args, self.kwargs = [], {}
        for argument in overload._schema.arguments:
            if argument.default_value is None and not argument.has_default_value():
                value = self._value(str(argument.type), argument.name)
            elif random.random() < 0.5:
                value = self._value(str(argument.type), argument.name)
                value = argument.default_value if value is NotImplemented else value
            else:
                value = argument.default_value
            if value is NotImplemented:
                raise ValueError(argument)
            if argument.kwarg_only:
                self.kwargs[argument.name] = value
            else:
                self.args.append(value)

    def _value(self, kind: str, name: str) -> Any:
        random = self._random
        if kind.startswith("Optional[") and random.random() < 0.3:
            return None
        kind = kind.removeprefix("Optional[").rstrip("]") + (
            "]" if kind.count("[") > kind.startswith("Optional[") else ""
        )
        if kind == "Tensor":
            return self._tensor(name)
        if kind in ("List[Tensor]", "List[Optional[Tensor]]"):
            return [self._tensor(name) for _ in range(random.integers(1, 3))]
        pool = _POOLS.get(f"{kind} {name}", _POOLS.get(kind))
        if pool is None:
            return NotImplemented
        value = pool[random.integers(len(pool))]
        if name == "dtype" and kind == "int":
            import torch

            return getattr(torch, str(value))
        return list(value) if isinstance(value, list) else value

    def _tensor(self, name: str) -> Any:
        import torch

        random = self._random
        shape = self.shape if random.random() < 0.6 else SHAPES[random.integers(len(SHAPES))]
        dtype = self.dtype if random.random() < 0.8 else random.choice(["float32", "int32", "int64", "bool"])
        if name in ("index", "indices") or (name == "mask" and random.random() < 0.8):
            dtype = "bool" if name == "mask" else "int64"
        if name in ("condition", "mask"):
            dtype = "bool"
        numbers = random.normal(0, 2, shape)
        if name in ("index", "indices"):
            numbers = random.integers(0, 3, shape)
        elif dtype.startswith("int"):
            numbers = np.where(np.round(numbers) == 0, 3, np.round(numbers))
        elif dtype == "bool":
            numbers = numbers > 0
        elif random.random() < 0.3:
            numbers = np.abs(numbers) + 0.1
        tensor = torch.from_numpy(np.asarray(numbers).astype(dtype))
        self.tensors.append(tensor)
        return tensor

    def text(self) -> str:
        """The call, for a message."""
        import torch

        def describe(item: Any) -> str:
            if isinstance(item, torch.Tensor):
                return f"{str(item.dtype).removeprefix('torch.')}{list(item.shape)}"
            return f"[{', '.join(map(describe, item))}]" if isinstance(item, list) else str(item)

        named = [f"{key}={describe(value)}" for key, value in self.kwargs.items() if value is not None]
        return f"{str(self.overload).removeprefix('aten.')}({', '.join([*map(describe, self.args), *named])})"

    def compute(self, *tensors: Any) -> Any:
        """Call the overload with other tensors in place of the drawn ones."""
        import torch

        remaining = iter(tensors)

        def substitute(item: Any) -> Any:
            if isinstance(item, torch.Tensor):
                return next(remaining)
            return [substitute(part) for part in item] if isinstance(item, list) else item

        return self.overload(
            *map(substitute, self.args), **{key: substitute(value) for key, value in self.kwargs.items()}
        )


class Program:
    """A draw as an exported program, for :mod:`torch_suite`."""

    def __init__(self, name: str, draw: Draw, results: list[Any]) -> None:
        import torch

        class Module(torch.nn.Module):
            def forward(self, *tensors: Any) -> Any:
                return draw.compute(*tensors)

        self.name, self.case, self.overload = name, f"{name}: {draw.text()}", str(draw.overload)
        self.program = torch.export.export(Module().eval(), tuple(draw.tensors))
        self.sets = [([item.numpy() for item in draw.tensors], [item.numpy() for item in results])]


def draw_programs(seed: int, count: int = COUNT, attempts: int = 60) -> Iterator[Program]:
    """Yield programs that PyTorch computes and exports; all overloads have equal numbers."""
    candidates = overloads()
    order = np.random.default_rng(0).permutation(len(candidates))
    for number in range(count):
        random = np.random.default_rng((seed, number))
        overload = candidates[order[(seed * count + number) % len(candidates)]]
        for _ in range(attempts):
            try:
                draw = Draw(overload, random)
                first, results = _compute(draw), _compute(draw)
                if _is_plain(draw, results) and all(map(_are_equal, first, results)):
                    yield Program(f"m{number}", draw, results)
                    break
            except Exception:  # PyTorch raises many types.
                continue


def _compute(draw: Draw) -> list[Any]:
    import torch

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        results = draw.compute(*[tensor.clone() for tensor in draw.tensors])
    return list(results) if isinstance(results, tuple | list) else [results]


def _are_equal(first: Any, second: Any) -> bool:
    import torch

    return bool(torch.equal(first, second))


def _is_plain(draw: Draw, results: list[Any]) -> bool:
    import torch

    known = (torch.float32, torch.int32, torch.int64, torch.bool, torch.uint8, torch.int8)
    if "topk" in str(draw.overload) and not results[0].is_floating_point():
        return False  # Equal integers have no order.
    if not draw.tensors or not all(isinstance(item, torch.Tensor) and item.numel() for item in results):
        return False
    if any(item.dtype not in known or item.numel() > 2000 for item in results):
        return False
    return all(bool(torch.isfinite(item).all()) for item in results if item.is_floating_point())


def _judge(seed: int) -> None:
    """Judge a seed's programs, and print a line for each."""
    import torch
    import torch_suite

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        programs = list(draw_programs(seed))
        outcomes = torch_suite.judge_programs(programs, Path(folder))
    for program in programs:
        outcome = outcomes[program.case]
        print(
            outcome.verdict, seed, program.overload, program.case, " ".join(outcome.text.split()), sep="\t", flush=True
        )


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2]) + 1):
        process = multiprocessing.get_context("fork").Process(target=_judge, args=(number,))
        process.start()
        process.join()
        if process.exitcode:
            print(f"crash\t{number}\t{process.exitcode}", flush=True)
