# SPDX-License-Identifier: Apache-2.0
"""Decompositions of ATen operators into those that the importer converts exactly.

A rule has the operator's signature and computes by other operators; ``NotImplemented`` leaves the operator as it is.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KINDS
from torch._prims_common import elementwise_dtypes

_ATEN = torch.ops.aten
_RULES: dict[str, Callable[..., Any]] = {}

# Operators that take operands of one type only here; the second group also turns integers into floats.
_SAME_TYPE = """add.Tensor add.Scalar sub.Tensor sub.Scalar mul.Tensor mul.Scalar maximum minimum fmod.Tensor fmod.Scalar
    remainder.Tensor remainder.Scalar div.Tensor_mode pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar eq.Tensor eq.Scalar
    ne.Tensor ne.Scalar lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar ge.Tensor ge.Scalar clamp
    bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar"""
_FLOAT = """acos acosh asin asinh atan atan2 atanh cos cosh div.Tensor div.Scalar erf exp expm1 log log10 log1p log2 reciprocal
    rsqrt sigmoid sin sinh sqrt tan tanh"""

# Operators that PyTorch decomposes, but not of itself at an export.
_PYTORCH = """addmv diagonal_scatter div.Scalar_mode
    grid_sampler_2d slice_scatter tril triu unfold"""


def decompositions() -> Any:
    table = torch.export.default_decompositions()
    own = {_overload(name): decomposition_table[_overload(name)] for name in _PYTORCH.split()}
    kinds = {name: KINDS.DEFAULT for name in _SAME_TYPE.split()} | {
        name: KINDS.INT_TO_FLOAT for name in _FLOAT.split()
    }
    names = {**dict.fromkeys(kinds), **_RULES}
    table.update(own | {_overload(name): _rule(name, kinds.get(name)) for name in names})
    return table


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(_ATEN, packet), overload or "default")


def _rule(name: str, kind: Any) -> Callable[..., Any]:
    overload, rule = _overload(name), _RULES.get(name, _leave)
    shared = next(iter(inspect.signature(rule).parameters)) == "overload"

    def apply(*operands: Any, **others: Any) -> Any:
        if kind is not None:
            dtype = elementwise_dtypes(*(item for item in operands if item is not None), type_promotion_kind=kind)[
                1
            ]
            typed = [item.to(dtype) if isinstance(item, torch.Tensor) else item for item in operands]
            if any(new is not old for new, old in zip(typed, operands, strict=True)):
                return overload(*typed, **others)
        return rule(*([overload] if shared else []), *operands, **others)

    return apply


def _of(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a rule. One whose first parameter is ``overload`` takes the operator, too."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            _RULES[name] = rule
        return rule

    return register


def _axes(value: Any, dim: Any) -> list[int]:
    listed = [dim] if isinstance(dim, int) else list(dim or range(value.dim()))
    return [axis % max(value.dim(), 1) for axis in listed]


def _leave(*_: Any, **__: Any) -> Any:
    return NotImplemented


# Arithmetic


@_of("add.Tensor", "add.Scalar")
def _add(value: Any, other: Any, alpha: Any = 1) -> Any:
    return NotImplemented if alpha == 1 else value + other * alpha


@_of("sub.Tensor", "sub.Scalar")
def _sub(value: Any, other: Any, alpha: Any = 1) -> Any:
    return NotImplemented if alpha == 1 else value - other * alpha


@_of("bitwise_not")
def _bitwise_not(value: Any) -> Any:
    return value.logical_not() if value.dtype == torch.bool else NotImplemented


@_of("ceil", "floor", "trunc", "round")
def _whole(value: Any) -> Any:
    return NotImplemented if value.is_floating_point() else value.clone()


@_of("clamp")
def _clamp(value: Any, low: Any = None, high: Any = None) -> Any:
    """The upper bound wins where both cross."""
    if low is not None and high is not None:
        return NotImplemented if low <= high else torch.full_like(value, high)
    if value.is_floating_point():
        return NotImplemented
    bound = torch.full([], high if low is None else low, dtype=value.dtype)
    return torch.minimum(value, bound) if low is None else torch.maximum(value, bound)


@_of("clamp.Tensor")
def _clamp_tensors(value: Any, low: Any = None, high: Any = None) -> Any:
    value = value if low is None else torch.maximum(value, low)
    return value if high is None else torch.minimum(value, high)


@_of("copysign.Tensor")
def _copysign(value: Any, sign: Any) -> Any:
    size = value.abs().to(torch.result_type(value, sign))
    return torch.where((sign < 0) | ((sign == 0) & (1 / sign < 0)), -size, size)


@_of("div.Tensor_mode")
def _div(value: Any, divisor: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return value / divisor
    if rounding_mode == "floor" and value.is_floating_point():
        rest = torch.remainder(value, divisor)
        quotient = torch.round((value - rest) / divisor)
        return torch.where(torch.isnan(rest), value / divisor, quotient)
    return NotImplemented


@_of("remainder.Tensor", "remainder.Scalar")
def _remainder(value: Any, divisor: Any) -> Any:
    if not value.is_floating_point():
        return NotImplemented
    rest = torch.fmod(value, divisor)
    return torch.where((rest != 0) & ((rest < 0) != (divisor < 0)), rest + divisor, rest)


@_of("expm1")
def _expm1(value: Any) -> Any:
    return torch.tanh(value / 2) * (torch.exp(value) + 1)


@_of("log1p")
def _log1p(value: Any) -> Any:
    total = value + 1
    exact = torch.log(total) * (value / torch.where(total == 1, 1, total - 1))
    return torch.where(total == 1, value, torch.where(torch.isinf(total), total, exact))


@_of("__lshift__.Scalar", "bitwise_left_shift.Tensor_Scalar")
def _shift_left(value: Any, places: int) -> Any:
    return value * (1 << places) if 0 <= places < value.dtype.itemsize * 8 - 1 else NotImplemented


@_of("__rshift__.Scalar", "bitwise_right_shift.Tensor_Scalar")
def _shift_right(value: Any, places: int) -> Any:
    fits = 0 <= places < value.dtype.itemsize * 8 - 1
    return torch.div(value, 1 << places, rounding_mode="floor") if fits else NotImplemented


@_of("where.self")
def _where(condition: Any, value: Any, other: Any) -> Any:
    dtype = torch.result_type(value, other)
    same = value.dtype == other.dtype == dtype
    return NotImplemented if same else torch.where(condition, value.to(dtype), other.to(dtype))


@_of("hypot")
def _hypot(value: Any, other: Any) -> Any:
    return torch.sqrt(value * value + other * other)


@_of("full_like")
def _full_like(value: Any, number: Any, dtype: Any = None, **others: Any) -> Any:
    return torch.full(value.shape, number, dtype=dtype or value.dtype)


@_of("empty.memory_format")
def _empty(size: Any, dtype: Any = None, **others: Any) -> Any:
    return torch.full(size, 0, dtype=dtype or torch.get_default_dtype())


@_of("copy")
def _copy(value: Any, source: Any, non_blocking: bool = False) -> Any:
    return source.to(value.dtype).expand(value.shape).clone()


# Reductions and order


@_of("var_mean.correction")
def _var_mean(value: Any, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Any:
    return torch.var(value, dim, correction=correction, keepdim=keepdim), torch.mean(
        value, _axes(value, dim), keepdim
    )


@_of("any", "any.dim", "any.dims")
def _any(value: Any, dim: Any = None, keepdim: bool = False) -> Any:
    hits = value if value.dtype == torch.bool else value != 0
    return torch.amax(hits.to(torch.int8), _axes(value, dim), keepdim) != 0


@_of("max.dim")
def _max(value: Any, dim: int, keepdim: bool = False) -> Any:
    return torch.amax(value, dim, keepdim), torch.argmax(value, dim, keepdim)


@_of("min.dim")
def _min(value: Any, dim: int, keepdim: bool = False) -> Any:
    return torch.amin(value, dim, keepdim), torch.argmin(value, dim, keepdim)


@_of("kthvalue")
def _kthvalue(value: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    parts = [part.narrow(dim, k - 1, 1) for part in torch.topk(value, k, dim, largest=False)]
    return tuple(part if keepdim else part.squeeze(dim) for part in parts)


@_of("median.dim")
def _median(value: Any, dim: int, keepdim: bool = False) -> Any:
    return torch.kthvalue(value, (value.shape[dim] + 1) // 2, dim, keepdim)


@_of("median")
def _median_of_all(value: Any) -> Any:
    return torch.median(value.reshape(-1), 0)[0]


@_of("sort")
def _sort(value: Any, dim: int = -1, descending: bool = False) -> Any:
    return torch.topk(value, value.shape[dim], dim, descending)


@_of("sort.stable")
def _stable_sort(value: Any, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    return torch.topk(value, value.shape[dim], dim, descending)


@_of("topk")
def _topk(value: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return NotImplemented if sorted else torch.topk(value, k, dim, largest)


@_of("linalg_vector_norm")
def _norm(value: Any, order: float = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if dtype is not None:
        return torch.linalg.vector_norm(value.to(dtype), order, dim, keepdim)
    return (value != 0).to(value.dtype).sum(_axes(value, dim), keepdim) if order == 0 else NotImplemented


@_of("cumsum")
def _cumsum(value: Any, dim: int, dtype: Any = None) -> Any:
    dtype = dtype or (value.dtype if value.is_floating_point() else torch.int64)
    return NotImplemented if dtype == value.dtype else torch.cumsum(value.to(dtype), dim)


@_of("cumprod")
def _cumprod(value: Any, dim: int, dtype: Any = None) -> Any:
    dtype = dtype or (value.dtype if value.is_floating_point() else torch.int64)
    return NotImplemented if dtype == value.dtype else torch.cumprod(value.to(dtype), dim)


@_of("prod.dim_int")
def _prod(value: Any, dim: int, keepdim: bool = False, dtype: Any = None) -> Any:
    dtype = dtype or (value.dtype if value.is_floating_point() else torch.int64)
    return NotImplemented if dtype == value.dtype else torch.prod(value.to(dtype), dim, keepdim)


@_of("prod")
def _prod_of_all(value: Any, dtype: Any = None) -> Any:
    return torch.prod(value.reshape(-1), 0, dtype=dtype)


@_of("searchsorted.Tensor")
def _searchsorted(
    edges: Any, value: Any, out_int32: bool = False, right: bool = False, side: Any = None, sorter: Any = None
) -> Any:
    if edges.dim() != 1 or sorter is not None:
        return NotImplemented
    below = (edges <= value[..., None]) if right or side == "right" else (edges < value[..., None])
    return below.sum(-1).to(torch.int32 if out_int32 else torch.int64)


# Places


@_of("squeeze", "squeeze.dim", "squeeze.dims")
def _squeeze(value: Any, dim: Any = None) -> Any:
    axes = range(value.dim()) if dim is None else _axes(value, dim)
    return value.reshape([extent for axis, extent in enumerate(value.shape) if axis not in axes or extent != 1])


def _indexed(value: Any, indices: Sequence[Any], wrap: bool) -> tuple[list[int], list[Any]]:
    """Axes, those that are indexed first, and indices of one shape that count from the first element."""
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    axes = [axis for axis, _ in given]
    parts = [torch.where(index < 0, index + value.shape[axis], index) if wrap else index for axis, index in given]
    return [*axes, *(axis for axis in range(value.dim()) if axis not in axes)], list(
        torch.broadcast_tensors(*parts)
    )


def _is_mask(indices: Sequence[Any]) -> bool:
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)


@_of("index.Tensor")
def _index(value: Any, indices: Sequence[Any], wrap: bool = True) -> Any:
    if _is_mask(indices):
        return NotImplemented
    order, parts = _indexed(value, indices, wrap)
    count, shape = len(parts), list(parts[0].shape)
    first, rest = order[0], [value.shape[axis] for axis in order[count:]]
    if count == 1:
        result = value.index_select(first, parts[0].reshape(-1))
        return result.reshape([*value.shape[:first], *shape, *value.shape[first + 1 :]])
    flat = _ATEN._unsafe_index(value.permute(order), [part.reshape(-1) for part in parts]).reshape([*shape, *rest])
    if order[:count] != list(range(first, first + count)):
        return flat
    before = [len(shape) + axis for axis in range(first)]
    return flat.permute([*before, *range(len(shape)), *range(len(shape) + first, flat.dim())])


@_of("_unsafe_index.Tensor")
def _unsafe_index(value: Any, indices: Sequence[Any]) -> Any:
    plain = len(indices) > 1 and _is_plain(indices)
    return NotImplemented if plain else _index(value, indices, False)


def _is_plain(indices: Sequence[Any]) -> bool:
    return all(index is not None and index.dim() == 1 and len(index) == len(indices[0]) for index in indices)


@_of("index_put")
def _index_put(
    value: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, wrap: bool = True
) -> Any:
    if _is_mask(indices):
        whole = len(indices) == 1 and values.numel() == 1 and not accumulate
        mask = indices[0].reshape([*indices[0].shape, *[1] * (value.dim() - indices[0].dim())])
        return torch.where(mask.to(torch.bool), values.reshape([]), value) if whole else NotImplemented
    order, parts = _indexed(value, indices, wrap)
    count, shape, rest = len(parts), list(parts[0].shape), [value.shape[axis] for axis in order[len(parts) :]]
    first = order[0] if order[:count] == list(range(order[0], order[0] + count)) else 0
    updates = values.expand([*rest[:first], *shape, *rest[first:]])
    updates = updates.movedim(list(range(first, first + len(shape))), list(range(len(shape)))).reshape([-1, *rest])
    result = _ATEN._unsafe_index_put(
        value.permute(order), [part.reshape(-1) for part in parts], updates, accumulate
    )
    return result.permute([order.index(axis) for axis in range(value.dim())])


@_of("_unsafe_index_put")
def _unsafe_index_put(value: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    return NotImplemented if _is_plain(indices) else _index_put(value, indices, values, accumulate, False)


@_of("as_strided")
def _as_strided(value: Any, size: Any, stride: Any, offset: int | None = None) -> Any:
    if not value.is_contiguous():
        return NotImplemented
    place = torch.full([], offset or 0)
    for extent, step in zip(size, stride, strict=True):
        place = place[..., None] + torch.arange(extent) * step
    return value.reshape(-1).index_select(0, place.reshape(-1)).reshape(size)


@_of("scatter.src", "scatter_add", "scatter_reduce.two")
def _scatter(overload: Any, value: Any, dim: int, index: Any, source: Any, *others: Any, **more: Any) -> Any:
    if source.shape == index.shape:
        return NotImplemented
    return overload(value, dim, index, source[tuple(slice(extent) for extent in index.shape)], *others, **more)


@_of("scatter.value")
def _scatter_value(value: Any, dim: int, index: Any, number: Any) -> Any:
    return torch.scatter(value, dim, index, torch.full(index.shape, number, dtype=value.dtype))


# Images and layers


def _places(extent: int, size: int, factor: float | None, corners: bool, center: float) -> Any:
    """Read position of an axis for each element of a resized one."""
    step = torch.arange(size, dtype=torch.float32)
    if corners:
        return step * ((extent - 1) / (size - 1) if size > 1 else 0.0)
    scale = extent / size if factor is None else 1 / factor
    return (step + center) * scale


def _sizes(value: Any, size: Any, factors: Any) -> list[tuple[int, int, int, float | None]]:
    """Axis, its extent, the extent of the result, and the factor where one is given."""
    extents = list(value.shape[2:])
    size = size or [math.floor(extent * factor) for extent, factor in zip(extents, factors, strict=True)]
    factors = factors or [None] * len(extents)
    return [(axis + 2, *row) for axis, row in enumerate(zip(extents, size, factors, strict=True))]


@_of(*(f"{name}{count}d.vec" for name in ("upsample_nearest", "_upsample_nearest_exact") for count in (1, 2, 3)))
def _nearest(overload: Any, value: Any, size: Any, factors: Any = None) -> Any:
    sizes, center = _sizes(value, size, factors), 0.5 if "exact" in str(overload) else 0.0
    whole = all(out % extent == 0 and factor in (None, out // extent) for _, extent, out, factor in sizes)
    if whole and str(overload) == "aten.upsample_nearest2d.vec":
        return NotImplemented
    for axis, extent, out, factor in sizes:
        place = _places(extent, out, factor, False, center).floor().to(torch.int64)
        value = value.index_select(axis, place.clamp(max=extent - 1))
    return value


@_of("upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec")
def _linear(overload: Any, value: Any, size: Any, align_corners: bool, factors: Any = None) -> Any:
    sizes = _sizes(value, size, factors)
    plain = all(factor is None or out == extent * factor for _, extent, out, factor in sizes)
    if (plain or align_corners) and value.dim() == 4:
        return NotImplemented
    for axis, extent, out, factor in sizes:
        place = _places(extent, out, factor, align_corners, 0.5)
        place = (place if align_corners else place - 0.5).clamp(0, extent - 1)
        low = place.floor()
        share = (place - low).reshape([-1, *[1] * (value.dim() - 1 - axis)])
        first, second = (
            value.index_select(axis, (low + step).clamp(max=extent - 1).to(torch.int64)) for step in (0, 1)
        )
        value = first + (second - first) * share
    return value


@_of("_upsample_bilinear2d_aa.vec")
def _smooth(value: Any, size: Any, align_corners: bool, factors: Any = None) -> Any:
    """A matrix of weights for each axis: triangles as wide as a step of the result."""
    if align_corners:
        return NotImplemented
    for axis, extent, out, factor in _sizes(value, size, factors):
        width = max(extent / out if factor is None else 1 / factor, 1.0)
        distance = torch.arange(extent) + 0.5 - _places(extent, out, factor, False, 0.5)[:, None]
        weights = (1 - distance.abs() / width).clamp(min=0)
        matrix = weights / weights.sum(1, keepdim=True)
        value = matrix @ value if axis == 2 else value @ matrix.t()
    return value


@_of("avg_pool2d")
def _avg_pool(
    value: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil: bool = False,
    count: bool = True,
    divisor: Any = None,
) -> Any:
    if divisor is None or ceil:
        return NotImplemented
    pool = torch.nn.functional.avg_pool2d(value, kernel, stride or None, padding)
    return pool * (math.prod([kernel] * 2 if isinstance(kernel, int) else [*kernel, *kernel][:2]) / divisor)


@_of("adaptive_max_pool2d")
def _adaptive_max_pool(value: Any, size: Any) -> Any:
    for axis, out in zip((-2, -1), size, strict=True):
        extent = value.shape[axis]
        cuts = [(index * extent // out, -((-index - 1) * extent // out)) for index in range(out)]
        value = torch.cat([value.narrow(axis, low, high - low).amax(axis, True) for low, high in cuts], axis)
    return value, torch.max_pool2d_with_indices(value, 1)[1]  # Refused where it is used.


@_of("_cdist_forward")
def _cdist(first: Any, second: Any, order: float, compute_mode: Any = None) -> Any:
    return torch.linalg.vector_norm(first.unsqueeze(-2) - second.unsqueeze(-3), order, -1)


@_of("native_group_norm")
def _group_norm(value: Any, weight: Any, bias: Any, *sizes: Any) -> Any:
    if weight is not None and bias is not None:
        return NotImplemented
    weight = value.new_ones(value.shape[1]) if weight is None else weight
    bias = value.new_zeros(value.shape[1]) if bias is None else bias
    return torch.native_group_norm(value, weight, bias, *sizes)
