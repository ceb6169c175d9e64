# SPDX-License-Identifier: Apache-2.0
"""Decompositions of ATen operators into those that the importer converts exactly.

A rule has the operator's parameters; its result ``None`` leaves the operator as it is.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KINDS
from torch._prims_common import elementwise_dtypes

from utvm.base.storage.config import read_yaml

DATA = Path(__file__).with_name("torch_arguments.yaml")
_ATEN = torch.ops.aten
_BITS = ("amax", "amin", "constant_pad_nd", "max", "min")  # Bool is computed as int8.
_WHOLE = ("ceil", "floor", "round", "trunc")  # No effect on integers.


def decompositions() -> Any:
    table, rows = torch.export.default_decompositions(), read_yaml(DATA)[0]
    table.update({_overload(name): decomposition_table[_overload(name)] for name in rows["decomposed"].split()})
    for name in rows["kept"].split():
        table.pop(_overload(name), None)
    floats = dict.fromkeys(rows["floats"].split(), KINDS.INT_TO_FLOAT)
    kinds = dict.fromkeys(rows["one_type"].split(), KINDS.DEFAULT) | floats
    table.update({_overload(key): _rule(key, kinds.get(key)) for key in {**kinds, **_RULES, **dict.fromkeys(_BITS)}})
    return table


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(_ATEN, packet), overload or "default")


def _rule(name: str, kind: Any) -> Callable[..., Any]:
    promote: Any = elementwise_dtypes
    rule: Any = _RULES.get(name, lambda *_, **__: None)
    overload = _overload(name)

    def apply(*operands: Any, **others: Any) -> Any:
        if name in _BITS and operands[0].dtype == torch.bool:
            return overload(operands[0].to(torch.int8), *operands[1:], **others).to(torch.bool)
        if kind is not None:
            given = (item for item in operands if item is not None)
            dtype = promote(*given, type_promotion_kind=kind)[1]
            typed = [item.to(dtype) if isinstance(item, torch.Tensor) else item for item in operands]
            if any(new is not old for new, old in zip(typed, operands, strict=True)):
                return overload(*typed, **others)
        result = rule(*operands, **others)
        return NotImplemented if result is None else result

    return apply


def _axes(value: Any, dim: Any) -> list[int]:
    listed = [dim] if isinstance(dim, int) else list(dim or range(value.dim()))
    return [axis % max(value.dim(), 1) for axis in listed]


def _clamp(value: Any, low: Any = None, high: Any = None) -> Any:
    """The upper bound wins where both cross; integers have no infinite bound."""
    if low is not None and high is not None:
        return None if low <= high else torch.full_like(value, high)
    if value.is_floating_point():
        return None
    bound = torch.full([], high if low is None else low, dtype=value.dtype)
    return torch.minimum(value, bound) if low is None else torch.maximum(value, bound)


def _clamp_tensors(value: Any, low: Any = None, high: Any = None) -> Any:
    value = value if low is None else torch.maximum(value, low)
    return value if high is None else torch.minimum(value, high)


def _div(value: Any, divisor: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return value / divisor
    if rounding_mode != "floor" or not value.is_floating_point():
        return None
    rest = torch.remainder(value, divisor)
    return torch.where(torch.isnan(rest), value / divisor, torch.round((value - rest) / divisor))


def _remainder(value: Any, divisor: Any) -> Any:
    if not value.is_floating_point():
        return None
    rest = torch.fmod(value, divisor)
    return torch.where((rest != 0) & ((rest < 0) != (divisor < 0)), rest + divisor, rest)


def _log1p(value: Any) -> Any:
    total = value + 1
    exact = torch.log(total) * (value / torch.where(total == 1, 1, total - 1))
    return torch.where(total == 1, value, torch.where(torch.isinf(total), total, exact))


def _elu(value: Any, alpha: float = 1, scale: float = 1, steep: float = 1) -> Any:
    return (value.clamp(min=0) + ((value.clamp(max=0) * steep).exp() - 1) * alpha) * scale


def _where(condition: Any, value: Any, other: Any) -> Any:
    dtype = torch.result_type(value, other)
    same = value.dtype == other.dtype == dtype
    return None if same else torch.where(condition, value.to(dtype), other.to(dtype))


def _any(value: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return torch.amax(value if value.dtype == torch.bool else value != 0, _axes(value, dim), keepdim)


def _norm(value: Any, order: float = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if dtype is not None:
        return torch.linalg.vector_norm(value.to(dtype), order, dim, keepdim)
    return (value != 0).to(value.dtype).sum(_axes(value, dim), keepdim) if order == 0 else None


def _running(function: Callable[..., Any]) -> Callable[..., Any]:
    """Integers become int64."""

    def rule(value: Any, dim: int, *keepdim: bool, dtype: Any = None) -> Any:
        dtype = dtype or (value.dtype if value.is_floating_point() else torch.int64)
        wide = dtype if dtype.is_floating_point else torch.int64
        return None if dtype == value.dtype == wide else function(value.to(wide), dim, *keepdim).to(dtype)

    return rule


def _squeeze(value: Any, dim: Any = None) -> Any:
    axes = range(value.dim()) if dim is None else _axes(value, dim)
    return value.reshape([extent for axis, extent in enumerate(value.shape) if axis not in axes or extent != 1])


def _index_axes(value: Any, indices: Sequence[Any], wrap: bool) -> tuple[list[int], list[Any]]:
    """Axes, those that are indexed first, and indices of one shape that count from the first element."""
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    axes = [axis for axis, _ in given]
    parts = [torch.where(index < 0, index + value.shape[axis], index) if wrap else index for axis, index in given]
    return [*axes, *(axis for axis in range(value.dim()) if axis not in axes)], list(torch.broadcast_tensors(*parts))


def _is_mask(indices: Sequence[Any]) -> bool:
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)


def _index(value: Any, indices: Sequence[Any], wrap: bool = True) -> Any:
    if _is_mask(indices):
        return None
    order, parts = _index_axes(value, indices, wrap)
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


def _is_plain(indices: Sequence[Any]) -> bool:
    return all(index is not None and index.dim() == 1 and len(index) == len(indices[0]) for index in indices)


def _index_put(value: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, wrap: bool = True) -> Any:
    if _is_mask(indices):
        whole = len(indices) == 1 and values.numel() == 1 and not accumulate
        mask = indices[0].reshape([*indices[0].shape, *[1] * (value.dim() - indices[0].dim())])
        return torch.where(mask.to(torch.bool), values.reshape([]), value) if whole else None
    order, parts = _index_axes(value, indices, wrap)
    count, shape, rest = len(parts), list(parts[0].shape), [value.shape[axis] for axis in order[len(parts) :]]
    first = order[0] if order[:count] == list(range(order[0], order[0] + count)) else 0
    updates = values.expand([*rest[:first], *shape, *rest[first:]])
    updates = updates.movedim(list(range(first, first + len(shape))), list(range(len(shape)))).reshape([-1, *rest])
    result = _ATEN._unsafe_index_put(value.permute(order), [part.reshape(-1) for part in parts], updates, accumulate)
    return result.permute([order.index(axis) for axis in range(value.dim())])


def _scatter(overload: Any) -> Callable[..., Any]:
    """A source may be larger than the index."""

    def rule(value: Any, dim: int, index: Any, source: Any, *others: Any, **more: Any) -> Any:
        same = source.shape == index.shape
        part = None if same else source[tuple(slice(extent) for extent in index.shape)]
        return None if same else overload(value, dim, index, part, *others, **more)

    return rule


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


def _nearest(center: float) -> Callable[..., Any]:
    def rule(value: Any, size: Any, factors: Any = None) -> Any:
        sizes = _sizes(value, size, factors)
        whole = all(out % extent == 0 and factor in (None, out // extent) for _, extent, out, factor in sizes)
        if whole and center == 0 and value.dim() == 4:
            return None
        for axis, extent, out, factor in sizes:
            place = _places(extent, out, factor, False, center).floor().to(torch.int64)
            value = value.index_select(axis, place.clamp(max=extent - 1))
        return value

    return rule


def _linear(value: Any, size: Any, align_corners: bool, factors: Any = None) -> Any:
    sizes = _sizes(value, size, factors)
    plain = all(factor is None or out == extent * factor for _, extent, out, factor in sizes)
    if (plain or align_corners) and value.dim() == 4:
        return None
    for axis, extent, out, factor in sizes:
        place = _places(extent, out, factor, align_corners, 0.5)
        place = (place if align_corners else place - 0.5).clamp(0, extent - 1)
        low = place.floor()
        share = (place - low).reshape([-1, *[1] * (value.dim() - 1 - axis)])
        first, second = (value.index_select(axis, (low + by).clamp(max=extent - 1).to(torch.int64)) for by in (0, 1))
        value = first + (second - first) * share
    return value


def _group_norm(value: Any, weight: Any, bias: Any, *sizes: Any) -> Any:
    if weight is not None and bias is not None:
        return None
    weight = value.new_ones(value.shape[1]) if weight is None else weight
    bias = value.new_zeros(value.shape[1]) if bias is None else bias
    return torch.native_group_norm(value, weight, bias, *sizes)


def _as_strided(value: Any, size: Any, stride: Any, offset: int | None = None) -> Any:
    """Return the value itself if no element moves, as after pooling channels-last values to one element."""
    steps = zip(value.shape, stride, value.stride(), strict=False)
    same = list(size) == list(value.shape) and all(extent == 1 or new == old for extent, new, old in steps)
    return value.clone() if same and offset in (None, value.storage_offset()) else None


_RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("add.Tensor", "add.Scalar"), lambda a, b, alpha=1: None if alpha == 1 else a + b * alpha),
    **dict.fromkeys(("sub.Tensor", "sub.Scalar"), lambda a, b, alpha=1: None if alpha == 1 else a - b * alpha),
    **dict.fromkeys(_WHOLE, lambda a: None if a.is_floating_point() else a.clone()),
    **dict.fromkeys(("isinf", "isnan"), lambda a: torch.zeros_like(a) if a.dtype == torch.bool else None),
    **dict.fromkeys(("remainder.Tensor", "remainder.Scalar"), _remainder),
    **dict.fromkeys(("any", "any.dim", "any.dims"), _any),
    **dict.fromkeys(("squeeze", "squeeze.dim", "squeeze.dims"), _squeeze),
    **{f"upsample_nearest{count}d.vec": _nearest(0.0) for count in (1, 2, 3)},
    **{f"_upsample_nearest_exact{count}d.vec": _nearest(0.5) for count in (1, 2, 3)},
    **dict.fromkeys(("upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec"), _linear),
    **{name: _scatter(_overload(name)) for name in ("scatter.src", "scatter_add", "scatter_reduce.two")},
    "_unsafe_index.Tensor": lambda a, at: None if len(at) > 1 and _is_plain(at) else _index(a, at, False),
    "_unsafe_index_put": lambda a, at, values, add=False: (
        None if _is_plain(at) else _index_put(a, at, values, add, False)
    ),
    "as_strided": _as_strided,
    "bitwise_not": lambda a: a.logical_not() if a.dtype == torch.bool else None,
    "clamp": _clamp,
    "clamp.Tensor": _clamp_tensors,
    "copy": lambda a, source, non_blocking=False: source.to(a.dtype).expand(a.shape).clone(),
    "cumprod": _running(torch.cumprod),
    "cumsum": _running(torch.cumsum),
    "div.Tensor_mode": _div,
    "elu": _elu,
    "empty.memory_format": lambda size, dtype=None, **_: torch.zeros(size, dtype=dtype or torch.float32),
    "expm1": lambda a: torch.tanh(a / 2) * (torch.exp(a) + 1),
    "full_like": lambda a, number, dtype=None, **_: torch.full(a.shape, number, dtype=dtype or a.dtype),
    "hardtanh": lambda a, low=-1, high=1: None if low <= high else torch.full_like(a, high),
    "hypot": lambda a, b: torch.sqrt(a * a + b * b),
    "index.Tensor": _index,
    "index_put": _index_put,
    "linalg_vector_norm": _norm,
    "log1p": _log1p,
    "max.dim": lambda a, *dims: (torch.amax(a, *dims), torch.argmax(a, *dims)),
    "min.dim": lambda a, *dims: (torch.amin(a, *dims), torch.argmin(a, *dims)),
    "mul.Tensor": lambda a, b: torch.logical_and(a, b) if a.dtype == getattr(b, "dtype", 0) == torch.bool else None,
    "native_group_norm": _group_norm,
    "prod.dim_int": _running(torch.prod),
    "scatter.value": lambda a, dim, at, number: a.scatter(dim, at, torch.full(at.shape, number, dtype=a.dtype)),
    "sign": lambda a: a.clone() if a.dtype == torch.bool else None,
    "select_scatter": lambda a, b, *at: decomposition_table[_overload("select_scatter")](a, b.to(a.dtype), *at),
    "slice_scatter": lambda a, b, *at: decomposition_table[_overload("slice_scatter")](a, b.to(a.dtype), *at),
    "sort": lambda a, dim=-1, descending=False: torch.topk(a, a.shape[dim], dim, descending),
    "sort.stable": lambda a, stable=None, dim=-1, descending=False: torch.topk(a, a.shape[dim], dim, descending),
    "topk": lambda a, k, dim=-1, top=True, order=True: None if order else torch.topk(a, k, dim, top),
    "var_mean.correction": lambda a, dim=None, correction=None, keepdim=False: (
        torch.var(a, dim, correction=correction, keepdim=keepdim),
        torch.mean(a, _axes(a, dim), keepdim),
    ),
    "where.self": _where,
}
"""Operator to its rule."""
