# SPDX-License-Identifier: Apache-2.0
"""Exported programs of one PyTorch operator, against PyTorch: the ATen operators that models have.

A case is an expression of its inputs, the complete program; its name is ``OPERATOR/type``, as in the lists.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml
from onnx_suite import Outcome
from programs import make_program, run_program

from utvm.compiler import Library
from utvm.compiler.bounded import run_bounded
from utvm.compiler.library import Model
from utvm.errors import UtvmError

Array = npt.NDArray[Any]
Shapes = tuple[tuple[int, ...], ...]

_LISTS = Path(__file__).parent / "torch_suite.yaml"
_ONE: Shapes = ((2, 3, 4),)
_TWO: Shapes = ((2, 3, 4), (3, 1))
_MAP: Shapes = ((1, 4, 6, 6),)
_REAL = ("float32",)
_ANY = ("float32", "int32")

_UNARY = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp expm1 floor isinf isnan log log10 log1p log2 neg "
    "reciprocal relu round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
)
_ON_INTEGERS = ("abs", "neg", "relu", "sign")
_BINARY = "add atan2 div eq fmod ge gt le lt maximum minimum mul ne pow remainder sub"
_LOGICAL = ("bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor")
_OTHERS: dict[str, tuple[str, Shapes, tuple[str, ...]]] = {
    "_adaptive_avg_pool2d": ("f.adaptive_avg_pool2d(a, 2)", _MAP, _REAL),
    "as_strided": ("f.adaptive_avg_pool2d(a.to(memory_format=torch.channels_last), 1)", _MAP, _REAL),
    "_log_softmax": ("f.log_softmax(a, -1)", _ONE, _REAL),
    "_softmax": ("f.softmax(a, 1)", _ONE, _REAL),
    "_to_copy": ("a.to(torch.int64)", _ONE, _ANY),
    "add, alpha": ("torch.add(a, b, alpha=3)", _TWO, _ANY),
    "addmm": ("f.linear(a, b, c)", ((2, 5), (3, 5), (3,)), _REAL),
    "amax": ("a.amax(1)", _ONE, _ANY),
    "amax, bool": ("(a > 0).amax(1)", _ONE, _REAL),
    "amin": ("a.amin((0, 2), keepdim=True)", _ONE, _ANY),
    "any": ("(a > 1).any(1)", _ONE, _ANY),
    "arange": ("a + torch.arange(4)", _ONE, _ANY),
    "argmax": ("a.argmax(1)", _ONE, _ANY),
    "argmin": ("a.argmin(-1)", _ONE, _ANY),
    "avg_pool1d": ("f.avg_pool1d(a, 2)", _ONE, _REAL),
    "avg_pool2d": ("f.avg_pool2d(a, 3, 2, 1)", _MAP, _REAL),
    "avg_pool2d, padding not counted": ("f.avg_pool2d(a, 3, 2, 1, False, False)", _MAP, _REAL),
    "avg_pool2d, divisor": ("f.avg_pool2d(a, 3, 2, 1, divisor_override=5)", _MAP, _REAL),
    "bmm": ("a @ b", ((2, 3, 4), (2, 4, 5)), _REAL),
    "bitwise_not": ("~a", _ONE, ("int32",)),
    "bitwise_not, bool": ("~(a > 1)", _ONE, _REAL),
    "cat": ("torch.cat((a, b), 1)", ((2, 3), (2, 4)), _ANY),
    "clamp": ("a.clamp(-1, 2)", _ONE, _ANY),
    "clamp, crossed": ("a.clamp(1, -1)", _ONE, _ANY),
    "constant_pad_nd": ("f.pad(a, (1, 2, 0, 1), value=3)", _ONE, _ANY),
    "constant_pad_nd, bool": ("f.pad(a > 0, (1, 2), value=True)", _ONE, _REAL),
    "convolution": ("f.conv2d(a, b, c, 2, 1)", ((1, 4, 6, 6), (3, 4, 3, 3), (3,)), _REAL),
    "convolution, one dimension": ("f.conv1d(a, b)", ((1, 4, 9), (3, 4, 3)), _REAL),
    "convolution, in groups": ("f.conv2d(a, b, None, 1, 1, 1, 4)", ((1, 4, 6, 6), (4, 1, 3, 3)), _REAL),
    "convolution, transposed": ("f.conv_transpose2d(a, b, None, 2)", ((1, 4, 5, 5), (4, 3, 3, 3)), _REAL),
    "cumsum": ("a.cumsum(1)", _ONE, _ANY),
    "elu": ("f.elu(a)", _ONE, _REAL),
    "embedding": ("f.embedding((a.abs() * 2).long() % 5, b)", ((2, 3), (5, 4)), _REAL),
    "expand": ("a.expand(2, 3, 4)", ((3, 1),), _ANY),
    "full_like": ("a + torch.full_like(a, 7)", _ONE, _ANY),
    "gather": ("a.gather(1, b.long() % 3)", ((2, 3), (2, 2)), _ANY),
    "gelu": ("f.gelu(a)", _ONE, _REAL),
    "gelu, tanh": ("f.gelu(a, approximate='tanh')", _ONE, _REAL),
    "grid_sampler_2d": ("f.grid_sample(a, b.tanh(), align_corners=False)", ((1, 4, 6, 6), (1, 3, 3, 2)), _REAL),
    "hardswish": ("f.hardswish(a)", _ONE, _REAL),
    "hardtanh": ("f.hardtanh(a, -1, 2)", _ONE, _REAL),
    "hardtanh, crossed": ("torch.ops.aten.hardtanh(a, 2, 1)", _ONE, _REAL),
    "index": ("a[:, torch.tensor([1, 0, 1])]", _ONE, _ANY),
    "index, negative": ("a[torch.tensor([1, 0]), torch.tensor([-1, 2])]", _ONE, _ANY),
    "index_put": ("a.index_put((torch.tensor([1, 0]),), torch.tensor(7, dtype=a.dtype))", _ONE, _ANY),
    "index_select": ("a.index_select(1, torch.tensor([2, 0]))", _ONE, _ANY),
    "leaky_relu": ("f.leaky_relu(a, 0.1)", _ONE, _REAL),
    "log_sigmoid": ("f.logsigmoid(a)", _ONE, _REAL),
    "logspace, a constant": ("a + torch.logspace(0.4, -1.3, 4, 0.1, dtype=torch.int64)", _ONE, _REAL),
    "logical_not": ("(a > 0).logical_not()", _ONE, _ANY),
    "masked_fill": ("a.masked_fill(a > 1, 5)", _ONE, _ANY),
    "max": ("a.max(1)[0]", _ONE, _ANY),
    "max_pool2d_with_indices": ("f.max_pool2d(a, 3, 2, 1)", _MAP, _REAL),
    "mean": ("a.mean((1, 2))", _ONE, _REAL),
    "min": ("a.min(1)[0]", _ONE, _ANY),
    "mish": ("f.mish(a)", _ONE, _REAL),
    "mm": ("a @ b", ((2, 5), (5, 3)), _REAL),
    "mul, a number": ("a * 3", _ONE, _ANY),
    "mul, bool": ("(a > 0) * (a < 1)", _ONE, _REAL),
    "native_batch_norm": ("f.batch_norm(a, b, c.abs() + 1, b, c)", ((1, 4, 6, 6), (4,), (4,)), _REAL),
    "native_group_norm": ("f.group_norm(a, 2, b)", ((1, 4, 6, 6), (4,)), _REAL),
    "native_layer_norm": ("f.layer_norm(a, (4,), b)", ((2, 3, 4), (4,)), _REAL),
    "permute": ("a.permute(2, 0, 1)", _ONE, _ANY),
    "pixel_shuffle": ("f.pixel_shuffle(a, 2)", _MAP, _REAL),
    "prelu": ("f.prelu(a, b)", ((2, 3, 4), (3,)), _REAL),
    "prod": ("a.prod(1)", _ONE, _REAL),
    "reflection_pad2d": ("f.pad(a, (1, 2, 1, 0), 'reflect')", _MAP, _REAL),
    "repeat": ("a.repeat(2, 1, 3)", _ONE, _ANY),
    "replication_pad2d": ("f.pad(a, (1, 2, 1, 0), 'replicate')", _MAP, _REAL),
    "roll": ("a.roll(1, 1)", _ONE, _ANY),
    "scatter": ("a.scatter(1, torch.tensor([[0, 1], [2, 0]]), b)", ((2, 3), (2, 2)), _ANY),
    "select": ("a.select(1, -1)", _ONE, _ANY),
    "select_scatter, of another type": ("torch.select_scatter(a, b * 1.5, dim=0, index=1)", ((2, 3), (3,)), ("int32",)),
    "selu": ("f.selu(a)", _ONE, _REAL),
    "silu": ("f.silu(a)", _ONE, _REAL),
    "slice": ("a[:, 1:, ::2]", _ONE, _ANY),
    "slice_scatter, of another type": ("torch.slice_scatter(a, b > 0, dim=1, start=0, step=1)", ((2, 3), (2, 3)), _ANY),
    "softplus": ("f.softplus(a)", _ONE, _REAL),
    "sort": ("a.sort(1)[0]", _ONE, _ANY),
    "split_with_sizes": ("a.split([1, 2], 1)[1]", _ONE, _ANY),
    "squeeze": ("a.squeeze(1)", ((3, 1),), _ANY),
    "stack": ("torch.stack((a, a), 1)", _ONE, _ANY),
    "std": ("a.std(1)", _ONE, _REAL),
    "sum": ("a.sum(1)", _ONE, _ANY),
    "topk": ("a.topk(2, 1)[0]", _ONE, _ANY),
    "tril": ("a.tril()", _ONE, _ANY),
    "triu": ("a.triu(1)", _ONE, _ANY),
    "unsqueeze": ("a.unsqueeze(1)", _ONE, _ANY),
    "upsample_bilinear2d": ("f.interpolate(a, scale_factor=2, mode='bilinear')", _MAP, _REAL),
    "upsample_nearest2d": ("f.interpolate(a, scale_factor=2)", _MAP, _REAL),
    "var": ("a.var((1, 2))", _ONE, _REAL),
    "upsample_bilinear2d, antialiased": ("f.interpolate(a, size=(4, 3), mode='bilinear', antialias=True)", _MAP, _REAL),
    "upsample_bilinear2d, by 1.7": ("f.interpolate(a, scale_factor=1.7, mode='bilinear')", _MAP, _REAL),
    "upsample_nearest2d, any size": ("f.interpolate(a, size=(7, 4))", _MAP, _REAL),
    "view": ("a.reshape(4, 6)", _ONE, _ANY),
    "where": ("torch.where(a > b, a, b)", _TWO, _ANY),
    "scaled_dot_product_attention": ("f.scaled_dot_product_attention(a, a, a)", ((1, 2, 3, 4),), _REAL),
    "lstm": ("torch.nn.LSTM(4, 3)(a)[0]", _ONE, _REAL),
    "gru": ("torch.nn.GRU(4, 3)(a)[0]", _ONE, _REAL),
}

ROWS: dict[str, tuple[str, Shapes, tuple[str, ...]]] = {
    **{name: (f"torch.{name}(a)", _ONE, _ANY if name in _ON_INTEGERS else _REAL) for name in _UNARY.split()},
    **{name: (f"torch.{name}(a, b)", _TWO, _ANY) for name in _BINARY.split()},
    **{name: (f"torch.{name}(a, b)", _TWO, ("int32", "bool")) for name in _LOGICAL},
    **_OTHERS,
}
"""Operator to an expression, the shapes of its inputs, and the tested element types."""


def cases() -> list[str]:
    """Names of all cases."""
    return [f"{row}/{dtype}" for row, (_, _, types) in ROWS.items() for dtype in types]


@functools.cache
def lists() -> dict[str, list[str]]:
    """The list: reason of a refusal to cases."""
    loaded: dict[str, list[str]] = yaml.safe_load(_LISTS.read_text(encoding="utf-8"))
    return loaded


class ExportedCase:
    """A case with its inputs, for :mod:`programs`."""

    def __init__(self, case: str, name: str) -> None:
        import torch

        row, _, dtype = case.rpartition("/")
        text, shapes, _ = ROWS[row]
        self.case, self.name = case, name
        random = np.random.default_rng(len(case))
        arrays = [(random.normal(0, 2, shape) + 0.01).astype(dtype) for shape in shapes]
        if dtype == "int32":
            arrays = [np.where(array == 0, 3, array).astype(dtype) for array in arrays]

        torch.manual_seed(0)
        code = eval(f"lambda {', '.join('abc'[: len(shapes)])}: {with_layer_name(text)}", variables_of(text))

        class Program(torch.nn.Module):
            def forward(self, *inputs: Any) -> Any:
                return code(*inputs)

        tensors = tuple(torch.from_numpy(array) for array in arrays)
        self.program = torch.export.export(Program().eval(), tensors)
        self.sets = [(arrays, [code(*tensors).detach().numpy()])]


def with_layer_name(text: str) -> str:
    """Replace a layer's constructor in an expression with a name, so that its weights are drawn once."""
    return text.replace(layer_constructor(text), "layer") if layer_constructor(text) else text


def layer_constructor(text: str) -> str:
    return text[: text.index(")") + 1] if text.startswith("torch.nn.") else ""


def variables_of(text: str) -> dict[str, Any]:
    import torch

    names: dict[str, Any] = {"torch": torch, "f": torch.nn.functional}
    if layer_constructor(text):
        names["layer"] = eval(layer_constructor(text), dict(names))
    return names


def judge(names: list[str], directory: Path) -> dict[str, Outcome]:
    """Export, compile and run cases; return their outcomes: ``right``, ``wrong`` or ``refused``."""
    return judge_programs([ExportedCase(case, f"m{number}") for number, case in enumerate(names)], directory)


def judge_programs(programs: Sequence[Any], directory: Path) -> dict[str, Outcome]:
    """Compile and run exported programs with a case, a name and sets of inputs and outputs."""
    outcomes, libraries = {}, {}
    for exported in programs:
        result = compile_program(exported, directory)
        if isinstance(result, Library):
            libraries[exported.name] = result
        else:
            outcomes[exported.case] = Outcome(exported.case, "refused", result)
    runnable = [exported for exported in programs if exported.name in libraries]
    program, rejected = make_program(runnable, libraries, directory)
    outcomes |= {
        exported.case: Outcome(exported.case, "wrong", rejected[exported.name])
        for exported in runnable
        if exported.name in rejected
    }
    runnable = [exported for exported in runnable if exported.name not in rejected]
    for exported, outputs in zip(runnable, run_program(runnable, libraries, program), strict=True):
        pairs = [] if isinstance(outputs, str) else zip(exported.sets[0][1], outputs[0], strict=True)
        text = outputs if isinstance(outputs, str) else "; ".join(filter(None, (_difference(*pair) for pair in pairs)))
        outcomes[exported.case] = Outcome(exported.case, "wrong" if text else "right", text)
    return outcomes


def compile_program(exported: Any, directory: Path) -> Library | str:
    import torch

    from utvm.compiler.build import build_library
    from utvm.compiler.read.exported_file import from_archive

    path = directory / f"{exported.name}.pt2"
    try:
        torch.export.save(exported.program, path)
        model: Model = from_archive(path.read_bytes(), exported.name, exported.name)
        return run_bounded(exported.name, "compile it", lambda: build_library(model, exported.name))
    except UtvmError as error:
        return error.message


def _difference(expected: Array, result: Array) -> str:
    if (expected.shape, expected.dtype) != (result.shape, result.dtype):
        return f"{result.shape} of {result.dtype} where {expected.shape} of {expected.dtype} are right"
    if np.allclose(result, expected, rtol=1e-4, atol=1e-5, equal_nan=True):
        return ""
    return f"{result.ravel()[:6]} where {expected.ravel()[:6]} are right"


def page(refused: dict[str, list[str]]) -> str:
    """Page of supported PyTorch operators, from the list of refusals."""
    reasons = {case: reason for reason, names in refused.items() for case in names}
    rows = []
    for row, (_, _, types) in sorted(ROWS.items()):
        correct = [dtype for dtype in types if f"{row}/{dtype}" not in reasons]
        refusals = "; ".join(sorted({reasons[f"{row}/{dtype}"] for dtype in types if f"{row}/{dtype}" in reasons}))
        rows.append(f"| {row} | {', '.join(correct)} | {refusals} |")
    return _PAGE.format(rows="\n".join(rows))


_PAGE = """
## PyTorch
Each ATen operator that `torch.export` emits is tested in a program of its own, which is exported,
compiled and compared with PyTorch's result, in the listed element types; most others work, too. Shapes are fixed
at export. Programs that are quantised with torchao run in integers: [pytorch.md](pytorch.md).

| operator | equal to PyTorch | refused |
|---|---|---|
{rows}
"""
