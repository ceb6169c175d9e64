# SPDX-License-Identifier: Apache-2.0
"""Random ONNX models of operators that move, select or convert numbers."""

import math
from typing import Any

import numpy as np
from onnx import helper
from onnx_computed import Drawing, axes_of
from onnx_draw import Draw


def draw_concatenation(draw: Draw) -> None:
    shape = draw.extents(1)
    dtype = draw.dtype_for("Concat")
    axis = draw.integer(0, len(shape) - 1)
    parts = [
        draw.either(draw.array((*shape[:axis], draw.integer(1, 4), *shape[axis + 1 :]), dtype))
        for _ in range(draw.integer(1, 4))
    ]
    draw.output(*draw.node("Concat", parts, axis=draw.pick(axis, axis - len(shape)) if draw.opset >= 11 else axis))


def draw_split(draw: Draw) -> None:
    shape = list(draw.extents(1))
    axis = draw.integer(0, len(shape) - 1)
    count = draw.integer(1, 4)
    sizes = [draw.integer(1, 3)] * count if draw.chance() else [draw.integer(1, 3) for _ in range(count)]
    shape[axis] = sum(sizes)
    changes: dict[str, Any] = {"axis": draw.pick(axis, axis - len(shape)) if draw.opset >= 11 else axis}
    names = [draw.input(draw.array(shape, draw.dtype_for("Split")))]
    even = len(set(sizes)) == 1
    if draw.opset < 13:
        changes["split"] = None if even and draw.chance() else sizes
    elif not even or draw.chance():
        names.append(draw.ints(*sizes))
    elif draw.opset >= 18:
        changes["num_outputs"] = count
    draw.output(*draw.node("Split", names, count, **changes))


def draw_slice(draw: Draw) -> None:
    data = draw.array(draw.extents(1), draw.dtype_for("Slice"))
    axes = sorted(int(index) for index in draw.random.permutation(data.ndim)[: draw.integer(1, data.ndim)])
    starts, ends, steps = [], [], []
    for axis in axes:
        extent = data.shape[axis]
        first = draw.integer(0, extent - 1)
        last = draw.integer(first + 1, extent)
        step = draw.integer(1, 3) if draw.opset >= 10 and draw.chance() else 1
        if draw.opset >= 10 and draw.chance(3):
            # Backwards; the index before the first element has no negative form.
            starts.append(draw.pick(last - 1, last - 1 - extent, extent + 3 if last == extent else last - 1))
            ends.append(draw.pick(first - 1, first - 1 - extent) if first else draw.pick(-extent - 1, -(1 << 31)))
            steps.append(-step)
            continue
        starts.append(draw.pick(first, first - extent, -extent - 9 if first == 0 else first))
        ends.append(
            draw.pick(last, last - extent if last < extent else extent, (1 << 63) - 1 if last == extent else last)
        )
        steps.append(step)
    if draw.opset < 10:
        default_axes = None if axes == list(range(len(axes))) and draw.chance() else axes
        draw.output(*draw.node("Slice", [draw.input(data)], axes=default_axes, starts=starts, ends=ends))
        return
    axis_values = [axis - data.ndim if draw.chance() else axis for axis in axes]
    axes_operand = "" if axes == list(range(len(axes))) and draw.chance() else draw.ints(*axis_values)
    steps_operand = "" if all(step_value == 1 for step_value in steps) and draw.chance() else draw.ints(*steps)
    draw.output(
        *draw.node("Slice", [draw.input(data), draw.ints(*starts), draw.ints(*ends), axes_operand, steps_operand])
    )


def draw_transpose(draw: Draw) -> None:
    data = draw.array(draw.extents(1, 5), draw.dtype_for("Transpose"))
    perm = [int(axis) for axis in draw.random.permutation(data.ndim)]
    draw.output(*draw.node("Transpose", [draw.input(data)], perm=None if draw.chance(4) else perm))


def draw_reshape(draw: Draw) -> None:
    data = draw.array(draw.extents(0), draw.dtype_for("Reshape"))
    target = draw.pick([-1], [1, -1], [data.size], [data.size, 1, 1], list(data.shape), [] if data.size == 1 else [-1])
    if data.ndim > 1:
        target = draw.pick(target, [0, -1], [-1, data.shape[-1]], [0] * data.ndim, [0, 0, -1])
    draw.output(*draw.node("Reshape", [draw.input(data), draw.ints(*target)]))


def draw_flatten(draw: Draw) -> None:
    data = draw.array(draw.extents(1), draw.dtype_for("Flatten"))
    axis = draw.integer(-data.ndim if draw.opset >= 11 else 0, data.ndim)
    draw.output(*draw.node("Flatten", [draw.input(data)], axis=draw.pick(None, axis)))


def draw_squeeze(draw: Draw) -> None:
    ones = [draw.chance() for _ in range(draw.integer(1, 5))]
    data = draw.array([1 if is_one else draw.integer(2, 4) for is_one in ones], draw.dtype_for("Squeeze"))
    unit_axes = [axis for axis, is_unit in enumerate(ones) if is_unit]
    axes = [axis - data.ndim if draw.chance() and draw.opset >= 11 else axis for axis in unit_axes if draw.chance()]
    if not axes:
        draw.output(*draw.node("Squeeze", [draw.input(data)]))
    elif draw.opset < 13:
        draw.output(*draw.node("Squeeze", [draw.input(data)], axes=axes))
    else:
        draw.output(*draw.node("Squeeze", [draw.input(data), draw.ints(*axes)]))


def draw_unsqueeze(draw: Draw) -> None:
    data = draw.array(draw.extents(0, 3), draw.dtype_for("Unsqueeze"))
    count = draw.integer(1, 2)
    indices = [int(index) for index in draw.random.permutation(data.ndim + count)[:count]]
    axes = [
        axis_index - data.ndim - count if draw.chance() and draw.opset >= 11 else axis_index for axis_index in indices
    ]
    if draw.opset < 13:
        draw.output(*draw.node("Unsqueeze", [draw.input(data)], axes=sorted(axes)))
    else:
        draw.output(*draw.node("Unsqueeze", [draw.input(data), draw.ints(*axes)]))


def draw_expansion(draw: Draw) -> None:
    shape = draw.extents(0, 3)
    data = draw.array([1 if draw.chance() else extent for extent in shape], draw.dtype_for("Expand"))
    target = [1 if draw.chance(4) else target_extent for target_extent in (*draw.shape(draw.integer(0, 1), 3), *shape)]
    draw.output(*draw.node("Expand", [draw.input(data), draw.ints(*target)]))


def draw_tile(draw: Draw) -> None:
    data = draw.array(draw.extents(1, 4), draw.dtype_for("Tile"))
    draw.output(*draw.node("Tile", [draw.input(data), draw.ints(*draw.shape(data.ndim, 3))]))


def draw_pad(draw: Draw) -> None:
    mode = draw.pick(None, "constant", "reflect", "edge", *(["wrap"] if draw.opset >= 19 else []))
    dtype = draw.dtype_for("Pad")
    data = draw.array([extent + 2 for extent in draw.extents(1)], dtype)
    axes = list(range(data.ndim))
    if draw.opset >= 18 and draw.chance(3):
        axes = axes_of(draw, data.ndim, 1)
    pads = [draw.integer(0, 2) for _ in range(2 * len(axes))]
    if mode in (None, "constant") and draw.chance(4):
        pads[draw.integer(0, len(pads) - 1)] = -1
    value = draw.array((), dtype)
    if draw.opset < 11:
        draw.output(*draw.node("Pad", [draw.input(data)], pads=pads, mode=mode, value=draw.pick(None, 1.5)))
        return
    names = [draw.input(data), draw.ints(*pads), draw.either(value, 2) if draw.chance(3) and mode is None else ""]
    if len(axes) != data.ndim or axes != sorted(axes) or min(axes) < 0:
        names.append(draw.ints(*axes))
    draw.output(*draw.node("Pad", names, mode=mode))


def indices_along(draw: Draw, extent: int, shape: tuple[int, ...], often: int = 2) -> np.ndarray:
    """Indices along an axis, some counted from the end."""
    indices = draw.random.integers(0, extent, shape)
    if draw.opset >= 11 and draw.chance(often):
        indices = np.where(draw.random.random(shape) < 0.5, indices, indices - extent)
    return indices.astype(draw.pick(np.int32, np.int64))


def draw_gather(draw: Draw) -> None:
    data = draw.array(draw.extents(1), draw.dtype_for("Gather"))
    axis = draw.integer(-data.ndim, data.ndim - 1) if draw.opset >= 11 else draw.integer(0, data.ndim - 1)
    indices = draw.either(indices_along(draw, data.shape[axis], draw.shape(draw.integer(0, 2), 4)), 2)
    draw.output(*draw.node("Gather", [draw.input(data), indices], axis=draw.pick(axis, None) if axis == 0 else axis))


def draw_gather_elements(draw: Draw) -> None:
    data = draw.array(draw.extents(1), draw.dtype_for("GatherElements"))
    axis = draw.integer(-data.ndim, data.ndim - 1)
    shape = [draw.integer(1, extent) for extent in data.shape]
    shape[axis] = draw.integer(1, 5)
    indices = draw.either(indices_along(draw, data.shape[axis], tuple(shape)), 2)
    draw.output(*draw.node("GatherElements", [draw.input(data), indices], axis=axis))


def index_tuples(
    draw: Draw, shape: tuple[int, ...], lead: tuple[int, ...], depth: int, distinct: bool = False
) -> np.ndarray:
    indices = np.stack([draw.random.integers(0, extent, lead) for extent in shape[:depth]], -1)
    if distinct:
        count = math.prod(lead)
        flat = draw.random.permutation(math.prod(shape[:depth]))[:count]
        indices = np.stack(np.unravel_index(flat, shape[:depth]), -1).reshape(*lead, depth)
    if draw.chance():
        indices = np.where(draw.random.random(indices.shape) < 0.5, indices, indices - np.array(shape[:depth]))
    return indices.astype(np.int64)


def draw_gather_nd(draw: Draw) -> None:
    data = draw.array(draw.extents(1), draw.dtype_for("GatherND"))
    batch = draw.integer(0, data.ndim - 1) if draw.opset >= 12 and draw.chance(3) else 0
    depth = draw.integer(1, data.ndim - batch)
    lead = (*data.shape[:batch], *draw.shape(draw.integer(0, 2), 3))
    indices = index_tuples(draw, data.shape[batch:], lead, depth)
    draw.output(*draw.node("GatherND", [draw.input(data), draw.either(indices, 2)], batch_dims=batch or None))


def scattering(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        data = draw.array(draw.extents(1), draw.dtype_for(operator))
        axis = draw.integer(-data.ndim, data.ndim - 1) if draw.opset >= 11 else draw.integer(0, data.ndim - 1)
        shape = [draw.integer(1, extent) for extent in data.shape]
        reductions = (
            ["none"]
            if draw.opset < 16
            else ["none", "add", "mul"]
            if draw.opset < 18
            else ["none", "add", "mul", "max", "min"]
        )
        reduction = draw.pick(*reductions) if data.dtype != bool else "none"
        indices = indices_along(draw, data.shape[axis], tuple(shape))
        if reduction == "none":  # The order of two writes to one element is undefined.
            order = np.argsort(
                draw.random.random((*shape[: axis % data.ndim], data.shape[axis], *shape[axis % data.ndim + 1 :])),
                axis % data.ndim,
            )
            indices = np.take(order, range(shape[axis]), axis % data.ndim).astype(indices.dtype)
        updates = draw.array(shape, str(data.dtype))
        names = [draw.input(data), draw.either(indices, 2), draw.either(updates)]
        draw.output(*draw.node(operator, names, axis=axis, reduction=reduction if reduction != "none" else None))

    return drawing


def draw_scatter_nd(draw: Draw) -> None:
    data = draw.array(draw.extents(1), draw.dtype_for("ScatterND"))
    depth = draw.integer(1, data.ndim)
    reductions = (
        ["none"]
        if draw.opset < 16
        else ["none", "add", "mul"]
        if draw.opset < 18
        else ["none", "add", "mul", "max", "min"]
    )
    reduction = draw.pick(*reductions) if data.dtype != bool else "none"
    lead = (draw.integer(1, min(4, math.prod(data.shape[:depth]))),)
    indices = index_tuples(draw, data.shape, lead, depth, distinct=reduction == "none")
    updates = draw.array((*lead, *data.shape[depth:]), str(data.dtype))
    names = [draw.input(data), draw.either(indices, 2), draw.either(updates)]
    draw.output(*draw.node("ScatterND", names, reduction=reduction if reduction != "none" else None))


def draw_depth_to_space(draw: Draw) -> None:
    size = draw.integer(1, 3)
    data = draw.array(
        (draw.integer(1, 2), size * size * draw.integer(1, 2), *draw.shape(2, 3)), draw.dtype_for("DepthToSpace")
    )
    mode = draw.pick(None, "DCR", "CRD") if draw.opset >= 11 else None
    draw.output(*draw.node("DepthToSpace", [draw.input(data)], blocksize=size, mode=mode))


def draw_space_to_depth(draw: Draw) -> None:
    size = draw.integer(1, 3)
    shape = (draw.integer(1, 2), draw.integer(1, 2), *(size * extent for extent in draw.shape(2, 3)))
    draw.output(
        *draw.node("SpaceToDepth", [draw.input(draw.array(shape, draw.dtype_for("SpaceToDepth")))], blocksize=size)
    )


def draw_reverse_sequence(draw: Draw) -> None:
    time = draw.integer(0, 1)
    data = draw.array(draw.shape(draw.integer(2, 4), 4), draw.dtype_for("ReverseSequence"))
    lengths = draw.random.integers(1, data.shape[time] + 1, data.shape[1 - time]).astype(np.int64)
    draw.output(
        *draw.node("ReverseSequence", [draw.input(data), draw.constant(lengths)], time_axis=time, batch_axis=1 - time)
    )


def draw_one_hot(draw: Draw) -> None:
    depth = draw.integer(1, 6)
    indices = draw.random.integers(-depth, depth, draw.shape(draw.integer(1, 3), 3)).astype(
        draw.pick(np.int32, np.int64)
    )
    values = draw.array((2,), draw.dtype_for("OneHot", 2))
    axis = draw.pick(None, draw.integer(-indices.ndim - 1, indices.ndim))
    draw.output(
        *draw.node(
            "OneHot", [draw.input(indices), draw.constant(np.array(depth, np.int64)), draw.either(values, 2)], axis=axis
        )
    )


def draw_trilu(draw: Draw) -> None:
    data = draw.array(draw.shape(draw.integer(2, 4), 5), draw.dtype_for("Trilu"))
    names = [draw.input(data), draw.constant(np.array(draw.integer(-3, 3), np.int64)) if draw.chance() else ""]
    draw.output(*draw.node("Trilu", names, upper=draw.pick(None, 0, 1)))


def draw_compress(draw: Draw) -> None:
    data = draw.array(draw.extents(1), draw.dtype_for("Compress"))
    axis = draw.pick(None, draw.integer(-data.ndim if draw.opset >= 11 else 0, data.ndim - 1))
    condition = draw.array((draw.integer(1, data.size if axis is None else data.shape[axis]),), "bool")
    condition[0] = True
    draw.output(*draw.node("Compress", [draw.input(data), draw.constant(condition)], axis=axis))


def draw_center_crop_pad(draw: Draw) -> None:
    data = draw.array(draw.extents(1), draw.dtype_for("CenterCropPad"))
    axes = axes_of(draw, data.ndim, 1)
    names = [draw.input(data), draw.ints(*(draw.integer(1, 6) for _ in axes))]
    draw.output(*draw.node("CenterCropPad", names, axes=axes))


def draw_shape(draw: Draw) -> None:
    data = draw.array(draw.extents(1), draw.dtype_for("Shape"))
    ends = {}
    if draw.opset >= 15:
        start = draw.integer(0, data.ndim - 1)
        end = draw.integer(start + 1, data.ndim)
        ends = {
            "start": draw.pick(start, start - data.ndim),
            "end": draw.pick(end, end - data.ndim if end < data.ndim else data.ndim + 2),
        }
    name = draw.input(data)
    shape = draw.node("Shape", [name], **ends)[0]
    draw.output(shape, *draw.node("Identity", [name]))


def draw_constant_of_shape(draw: Draw) -> None:
    value = draw.pick(None, draw.array((1,), draw.dtype_for("Add")))
    shape = draw.ints(*draw.extents(1, 3))
    tensor = (
        None if value is None else helper.make_tensor("v", helper.np_dtype_to_tensor_dtype(value.dtype), [1], value)
    )
    filled = draw.node("ConstantOfShape", [shape], value=tensor)[0]
    dtype = "float32" if value is None else str(value.dtype)
    draw.output(*draw.node("Add", [filled, draw.input(draw.array((1,), dtype))]))


def draw_range(draw: Draw) -> None:
    dtype = draw.dtype_for("Range")
    step = draw.pick(1, 2, 3, -1, -2)
    start = draw.integer(-5, 5)
    limit = start + step * draw.integer(1, 5) - (1 if step > 1 and draw.chance() else 0)
    names = [draw.constant(np.array(number, dtype)) for number in (start, limit, step)]
    row = draw.node("Range", names)[0]
    draw.output(*draw.node("Add", [row, draw.input(draw.array((1,), dtype))]))


def draw_cast(draw: Draw) -> None:
    origin, target = draw.dtype_for("Cast"), draw.dtype_for("Cast")
    data = draw.array(draw.extents(0), origin)
    if np.dtype(target).kind == "u":
        data = np.abs(data) if data.dtype != bool else data
    draw.output(*draw.node("Cast", [draw.input(data)], to=helper.np_dtype_to_tensor_dtype(np.dtype(target))))


def draw_cast_like(draw: Draw) -> None:
    origin, target = draw.dtype_for("CastLike"), draw.dtype_for("CastLike")
    data = draw.array(draw.extents(0), origin, 0, 50)
    data = np.abs(data) if data.dtype.kind == "f" else data
    draw.output(*draw.node("CastLike", [draw.input(data), draw.constant(draw.array((1,), target))]))


def draw_eye_like(draw: Draw) -> None:
    data = draw.array(draw.shape(2, 5), draw.dtype_for("EyeLike"))
    name = draw.input(data)
    eye = draw.node("EyeLike", [name], k=draw.pick(None, draw.integer(-3, 3)))[0]
    draw.output(eye, *draw.node("Identity", [name]))


_COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")


def draw_resize(draw: Draw) -> None:
    rank = draw.integer(1, 2)
    shape = (draw.integer(1, 2), draw.integer(1, 2), *(draw.integer(1, 6) for _ in range(rank)))
    name = draw.input(draw.array(shape))
    if draw.opset < 10:
        scales = [1.0, 1.0, *(draw.pick(1.0, 2.0, 3.0) for _ in range(rank))]
        mode = draw.pick(None, "nearest", "linear")
        names = [name, draw.constant(np.array(scales, np.float32))]
        draw.output(
            *draw.node("Upsample", names, mode=mode)
            if draw.opset == 9
            else draw.node("Upsample", names[:1], mode=mode, scales=scales)
        )
        return
    mode = draw.pick(None, "nearest", "linear", *(["cubic"] if draw.opset >= 11 else []))
    scales = [1.0, 1.0, *(draw.pick(0.5, 1.0, 2.0, 1.5, 0.7, 3.0) for _ in range(rank))]
    scales = [max(scale, 1 / extent + 0.01) for scale, extent in zip(scales, shape, strict=True)]
    if draw.opset == 10:
        draw.misread = True  # The evaluator follows operator set 11, with other coordinates.
        draw.output(*draw.node("Resize", [name, draw.constant(np.array(scales, np.float32))], mode=mode))
        return
    changes: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": draw.pick(None, *_COORDINATES[: 5 if draw.opset >= 19 else 4]),
    }
    if mode in (None, "nearest"):
        changes["nearest_mode"] = draw.pick(None, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic":
        changes |= {"cubic_coeff_a": draw.pick(None, -0.5), "exclude_outside": draw.pick(None, 0, 1)}
    if mode in ("linear", "cubic") and draw.opset >= 18:
        changes["antialias"] = draw.pick(None, None, 0, 1)
    region = "" if draw.opset >= 13 else draw.constant(np.zeros(0, np.float32))
    if draw.chance():
        draw.output(*draw.node("Resize", [name, region, draw.constant(np.array(scales, np.float32))], **changes))
    else:
        sizes = [*shape[:2], *(draw.integer(1, 9) for _ in range(rank))]
        empty = "" if draw.opset >= 13 else draw.constant(np.zeros(0, np.float32))
        draw.output(*draw.node("Resize", [name, region, empty, draw.ints(*sizes)], **changes))


def draw_grid_sample(draw: Draw) -> None:
    mode = draw.pick(
        None, "nearest", "bilinear" if draw.opset < 20 else "linear", *([] if draw.opset < 20 else ["cubic"])
    )
    data = draw.array((draw.integer(1, 2), draw.integer(1, 2), *(draw.integer(2, 5) for _ in range(2))))
    grid = draw.random.uniform(-1.3, 1.3, (data.shape[0], *draw.shape(2, 4), 2)).astype(np.float32)
    names = [draw.input(data), draw.either(grid)]
    padding = draw.pick(None, "zeros", "border", "reflection")
    draw.output(*draw.node("GridSample", names, mode=mode, padding_mode=padding, align_corners=draw.pick(None, 0, 1)))


def draw_roi_align(draw: Draw) -> None:
    data = draw.array((draw.integer(1, 2), draw.integer(1, 2), 6, 7))
    count = draw.integer(1, 3)
    corners = np.sort(draw.random.uniform(0, 6, (count, 2, 2)), 1).reshape(count, 4).astype(np.float32)
    indices = draw.random.integers(0, data.shape[0], count).astype(np.int64)
    mode = draw.pick(None, "half_pixel", "output_half_pixel") if draw.opset >= 16 else None
    draw.misread = draw.opset < 16  # The evaluator follows operator set 16, which subtracts half an element.
    draw.output(
        *draw.node(
            "RoiAlign",
            [draw.input(data), draw.input(corners), draw.either(indices, 2)],
            output_height=draw.integer(1, 3),
            output_width=draw.integer(1, 3),
            sampling_ratio=draw.integer(0, 2),
            spatial_scale=draw.pick(None, 0.5),
            coordinate_transformation_mode=mode,
        )
    )


def draw_col2im(draw: Draw) -> None:
    image, block = [draw.integer(3, 6) for _ in range(2)], [draw.integer(1, 3) for _ in range(2)]
    strides, dilations, pads = (
        [draw.integer(1, 2) for _ in range(2)],
        [draw.integer(1, 2) for _ in range(2)],
        [draw.integer(0, 1) for _ in range(4)],
    )
    while any((block[axis] - 1) * dilations[axis] + 1 > image[axis] + pads[axis] + pads[axis + 2] for axis in range(2)):
        block = [draw.integer(1, 3) for _ in range(2)]
    counts = [
        (image[axis] + pads[axis] + pads[axis + 2] - (block[axis] - 1) * dilations[axis] - 1) // strides[axis] + 1
        for axis in range(2)
    ]
    data = draw.array((draw.integer(1, 2), draw.integer(1, 2) * math.prod(block), math.prod(counts)))
    names = [draw.input(data), draw.ints(*image), draw.ints(*block)]
    draw.output(*draw.node("Col2Im", names, strides=strides, dilations=dilations, pads=pads))


MOVED: dict[str, Drawing] = {
    **{operator: scattering(operator) for operator in ("Scatter", "ScatterElements")},
    "Cast": draw_cast,
    "CastLike": draw_cast_like,
    "CenterCropPad": draw_center_crop_pad,
    "Col2Im": draw_col2im,
    "Compress": draw_compress,
    "Concat": draw_concatenation,
    "ConstantOfShape": draw_constant_of_shape,
    "DepthToSpace": draw_depth_to_space,
    "Expand": draw_expansion,
    "EyeLike": draw_eye_like,
    "Flatten": draw_flatten,
    "Gather": draw_gather,
    "GatherElements": draw_gather_elements,
    "GatherND": draw_gather_nd,
    "GridSample": draw_grid_sample,
    "OneHot": draw_one_hot,
    "Pad": draw_pad,
    "Range": draw_range,
    "Reshape": draw_reshape,
    "Resize": draw_resize,
    "ReverseSequence": draw_reverse_sequence,
    "RoiAlign": draw_roi_align,
    "ScatterND": draw_scatter_nd,
    "Shape": draw_shape,
    "Slice": draw_slice,
    "SpaceToDepth": draw_space_to_depth,
    "Split": draw_split,
    "Squeeze": draw_squeeze,
    "Tile": draw_tile,
    "Transpose": draw_transpose,
    "Trilu": draw_trilu,
    "Unsqueeze": draw_unsqueeze,
}
