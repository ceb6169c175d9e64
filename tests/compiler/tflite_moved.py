# SPDX-License-Identifier: Apache-2.0
"""Random layers that move or convert numbers."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from tflite_computed import broadcast_pair
from tflite_draw import Draw, Layer, Shape, Spec, int32


def draw_concatenation(draw: Draw) -> Layer:
    shape = draw.shape(draw.integer(1, 4))
    axis = draw.integer(0, len(shape) - 1)
    first = draw.tensor(shape)
    parts = [
        draw.like(first, (*shape[:axis], draw.integer(1, 5), *shape[axis + 1 :])) for _ in range(draw.integer(1, 4))
    ]
    result_shape = (*shape[:axis], sum(part.shape[axis] for part in parts), *shape[axis + 1 :])
    return Layer(parts, [draw.like(first, result_shape)], {"axis": draw.pick(axis, axis - len(shape))})


def draw_reshape(draw: Draw) -> Layer:
    shape = draw.shape(draw.integer(1, 4))
    data = draw.tensor(shape)
    target = [math.prod(shape[:-1]), shape[-1]]
    return Layer([data, int32(draw.pick(target, [-1, shape[-1]]))], [draw.like(data, target)])


def draw_squeeze(draw: Draw) -> Layer:
    shape = draw.shape(2)
    data = draw.tensor((1, shape[0], 1, shape[1]))
    return Layer([data], [draw.like(data, shape)], {"squeeze_dims": draw.pick([0, 2], [0, -2])})


def draw_expand(draw: Draw) -> Layer:
    shape = draw.shape(draw.integer(1, 3))
    axis = draw.integer(0, len(shape))
    data = draw.tensor(shape)
    return Layer([data, int32([axis])], [draw.like(data, (*shape[:axis], 1, *shape[axis:]))])


def draw_transpose(draw: Draw) -> Layer:
    shape = draw.shape(draw.integer(1, 5))
    order = [int(axis) for axis in draw.random.permutation(len(shape))]
    data = draw.tensor(shape)
    return Layer([data, int32(order)], [draw.like(data, [shape[axis] for axis in order])])


def random_pads(draw: Draw, shape: Shape) -> tuple[np.ndarray, Shape]:
    pads = np.array([[draw.integer(0, 2), draw.integer(0, 2)] for _ in shape], np.int32)
    return pads, tuple(extent + int(pads[axis].sum()) for axis, extent in enumerate(shape))


def draw_pad(draw: Draw) -> Layer:
    shape = draw.shape(draw.integer(1, 4))
    pads, result_shape = random_pads(draw, shape)
    data = draw.tensor(shape)
    return Layer([data, int32(pads)], [draw.like(data, result_shape)])


def draw_pad_with(draw: Draw) -> Layer:
    layer = draw_pad(draw)
    data = layer.inputs[0]
    assert data is not None
    value = replace(draw.like(data, (1,)), data=draw.values((1,), data))
    return Layer([*layer.inputs, value], layer.outputs)


def draw_mirror(draw: Draw) -> Layer:
    shape = tuple(extent + 3 for extent in draw.shape(draw.integer(1, 4), 4))
    pads, result_shape = random_pads(draw, shape)
    data = draw.tensor(shape)
    return Layer([data, int32(pads)], [draw.like(data, result_shape)], {"mode": draw.pick("REFLECT", "SYMMETRIC")})


def draw_split(draw: Draw) -> Layer:
    shape = list(draw.shape(draw.integer(1, 4)))
    axis, count = draw.integer(0, len(shape) - 1), draw.integer(1, 3)
    part = tuple(shape)
    shape[axis] *= count
    data = draw.tensor(shape)
    axis_value = draw.pick(axis, axis - len(shape))
    return Layer([int32(axis_value), data], [draw.like(data, part)] * count, {"num_splits": count})


def draw_split_at(draw: Draw) -> Layer:
    shape = list(draw.shape(draw.integer(1, 4)))
    axis = draw.integer(0, len(shape) - 1)
    sizes = [draw.integer(1, 4) for _ in range(draw.integer(1, 3))]
    parts = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
    shape[axis] = sum(sizes)
    data = draw.tensor(shape)
    if draw.integer(0, 1):
        sizes[draw.integer(0, len(sizes) - 1)] = -1
    return Layer(
        [data, int32(sizes), int32(axis)], [draw.like(data, part) for part in parts], {"num_splits": len(sizes)}
    )


def draw_slice(draw: Draw) -> Layer:
    shape = draw.shape(draw.integer(1, 4))
    begin = [draw.integer(0, extent - 1) for extent in shape]
    size = [draw.integer(1, extent - first) for extent, first in zip(shape, begin, strict=True)]
    data = draw.tensor(shape)
    return Layer([data, int32(begin), int32(size)], [draw.like(data, size)])


def draw_strided(draw: Draw) -> Layer:
    shape = draw.shape(draw.integer(1, 4))
    begins, ends, strides, result = [], [], [], []
    masks = {"begin_mask": 0, "end_mask": 0, "shrink_axis_mask": 0}
    for axis, extent in enumerate(shape):
        backwards = draw.integer(0, 4) == 0
        stride = draw.integer(1, 3) * (-1 if backwards else 1)
        first = draw.integer(0, extent - 1)
        last = draw.integer(first + 1, extent + 2) if not backwards else draw.integer(-1, first - 1)
        result_shape = draw.integer(0, 2) == 0
        if not backwards and draw.integer(0, 3) == 0 and not result_shape:
            masks["shrink_axis_mask"] |= 1 << axis
            begins.append(first)
            ends.append(first + 1)
            strides.append(1)
            continue
        if result_shape or last < 0:
            masks["end_mask"] |= 1 << axis
            last = first + 1
        if result_shape:
            masks["begin_mask"] |= 1 << axis
        covered = range(extent)[
            None if result_shape else first : None if masks["end_mask"] >> axis & 1 else last : stride
        ]
        begins.append(first)
        ends.append(last)
        strides.append(stride)
        result.append(len(covered))
    data = draw.tensor(shape)
    return Layer([data, int32(begins), int32(ends), int32(strides)], [draw.like(data, result)], masks)


def draw_pack(draw: Draw) -> Layer:
    shape, count = draw.shape(draw.integer(1, 3)), draw.integer(1, 4)
    axis = draw.integer(0, len(shape))
    data = draw.tensor(shape)
    result_shape = (*shape[:axis], count, *shape[axis:])
    return Layer([data] * count, [draw.like(data, result_shape)], {"values_count": count, "axis": axis})


def draw_unpack(draw: Draw) -> Layer:
    shape, count = draw.shape(draw.integer(1, 3)), draw.integer(1, 4)
    axis = draw.integer(0, len(shape))
    data = draw.tensor((*shape[:axis], count, *shape[axis:]))
    return Layer([data], [draw.like(data, shape)] * count, {"num": count, "axis": axis})


def draw_gather(draw: Draw) -> Layer:
    shape = draw.shape(draw.integer(1, 4))
    axis = draw.integer(0, len(shape) - 1)
    indices = draw.random.integers(0, shape[axis], draw.shape(draw.integer(0, 2), 4))
    data = draw.tensor(shape)
    result_shape = (*shape[:axis], *indices.shape, *shape[axis + 1 :])
    return Layer([data, int32(indices)], [draw.like(data, result_shape)], {"axis": axis})


def draw_gather_of_batches(draw: Draw) -> Layer:
    shape = draw.shape(draw.integer(2, 4))
    batches = draw.integer(1, len(shape) - 1)
    axis = draw.integer(batches, len(shape) - 1)
    index_shape = (*shape[:batches], *draw.shape(draw.integer(0, 2), 3))
    data = draw.tensor(shape)
    result_shape = (*shape[:axis], *index_shape[batches:], *shape[axis + 1 :])
    indices = int32(draw.random.integers(0, shape[axis], index_shape))
    return Layer([data, indices], [draw.like(data, result_shape)], {"axis": axis, "batch_dims": batches})


def draw_gather_nd(draw: Draw) -> Layer:
    shape = draw.shape(draw.integer(1, 4))
    depth = draw.integer(1, len(shape))
    rows = draw.integer(1, 5)
    indices = np.stack([draw.random.integers(0, shape[axis], rows) for axis in range(depth)], -1)
    data = draw.tensor(shape)
    return Layer([data, int32(indices)], [draw.like(data, (rows, *shape[depth:]))])


def block_moves(deeper: bool) -> Callable[[Draw], Layer]:
    def layer(draw: Draw) -> Layer:
        block = draw.integer(1, 3)
        height, width, depth = draw.shape(3, 4)
        small = (draw.integer(1, 2), height, width, depth * block * block)
        large = (small[0], height * block, width * block, depth)
        data = draw.tensor(large if deeper else small)
        return Layer([data], [draw.like(data, small if deeper else large)], {"block_size": block})

    return layer


def draw_space_to_batch(draw: Draw) -> Layer:
    blocks = (draw.integer(1, 2), draw.integer(1, 3))
    out, depth = draw.shape(2, 3), draw.integer(1, 3)
    result_shape = [out[0] * blocks[0], out[1] * blocks[1]]
    # In 8 bits the reference kernels pad with an uninitialised number.
    pads = [[0 if draw.dtype == "int8" else draw.integer(0, min(1, extent - 1)), 0] for extent in result_shape]
    shape = (draw.integer(1, 2), result_shape[0] - pads[0][0], result_shape[1] - pads[1][0], depth)
    data = draw.tensor(shape)
    result = (shape[0] * blocks[0] * blocks[1], *out, depth)
    return Layer([data, int32(blocks), int32(pads)], [draw.like(data, result)])


def draw_batch_to_space(draw: Draw) -> Layer:
    blocks = (draw.integer(1, 2), draw.integer(1, 3))
    inner, depth, batch = draw.shape(2, 3), draw.integer(1, 3), draw.integer(1, 2)
    result_shape = [inner[0] * blocks[0], inner[1] * blocks[1]]
    crops = [[draw.integer(0, min(1, extent - 1)), 0] for extent in result_shape]
    data = draw.tensor((batch * blocks[0] * blocks[1], *inner, depth))
    result = (batch, result_shape[0] - crops[0][0], result_shape[1] - crops[1][0], depth)
    return Layer([data, int32(blocks), int32(crops)], [draw.like(data, result)])


def draw_resize(draw: Draw) -> Layer:
    batch, height, width, depth = draw.shape(4, 4)
    target = (draw.integer(1, 8), draw.integer(1, 8))
    data = draw.tensor((batch, height, width, depth))
    corners = draw.integer(0, 2) == 0
    options = {"align_corners": corners, "half_pixel_centers": not corners and draw.integer(0, 1) == 1}
    return Layer([data, int32(target)], [draw.like(data, (batch, *target, depth))], options)


def cast_to(target: str) -> Callable[[Draw], Layer]:
    def layer(draw: Draw) -> Layer:
        shape = draw.shape(draw.integer(1, 3))
        return Layer([Spec(shape, draw.dtype)], [Spec(shape, target)])

    return layer


def quantize_to(target: str) -> Callable[[Draw], Layer]:
    def layer(draw: Draw) -> Layer:
        data = draw.tensor(draw.shape(draw.integer(1, 3), 9))
        out = Draw(str(draw.integer(0, 1 << 30)), target).tensor(data.shape)
        if target == "int32":
            out = replace(out, scale=float(draw.random.uniform(0.0001, 0.01)), zero=0)
        return Layer([data], [out])

    return layer


def draw_dequantize(draw: Draw) -> Layer:
    data = draw.tensor(draw.shape(draw.integer(1, 3), 9))
    return Layer([data], [Spec(data.shape, "float32")])


def draw_prelu(draw: Draw) -> Layer:
    shape = draw.shape(4)
    data, out = draw.tensor(shape), draw.tensor(shape)
    slopes = draw.pick((1, 1, shape[3]), (shape[3],), (shape[1], shape[2], shape[3]), (1, 1, 1))
    alpha = draw.tensor(slopes)
    if out.scale:
        alpha = replace(alpha, scale=alpha.scale / 8)
        out = replace(out, scale=data.scale * draw.random.uniform(0.5, 2))
    return Layer([data, replace(alpha, data=draw.values(slopes))], [out])


def draw_select(draw: Draw) -> Layer:
    shape = draw.shape(draw.integer(1, 4))
    a, b, c = (tuple(1 if draw.integer(0, 4) == 0 else extent for extent in shape) for _ in range(3))
    data = draw.tensor(b)
    result_shape = tuple(np.broadcast_shapes(a, b, c))
    return Layer([Spec(a, "bool"), data, draw.like(data, c)], [draw.like(data, result_shape)])


def draw_reverse(draw: Draw) -> Layer:
    shape = draw.shape(draw.integer(1, 4))
    data = draw.tensor(shape)
    return Layer([data, int32([draw.integer(0, len(shape) - 1)])], [draw.like(data, shape)])


def draw_broadcast_to(draw: Draw) -> Layer:
    result_shape = draw.shape(draw.integer(1, 4))
    data = draw.tensor([1 if draw.integer(0, 1) else extent for extent in result_shape])
    return Layer([data, int32(result_shape)], [draw.like(data, result_shape)])


def draw_broadcast_args(draw: Draw) -> Layer:
    a, b, result_shape = broadcast_pair(draw)
    return Layer([int32(a), int32(b)], [Spec((len(result_shape),), "int32")])


def draw_cumsum(draw: Draw) -> Layer:
    shape = draw.shape(draw.integer(1, 4))
    axis = draw.integer(0, len(shape) - 1)
    data, out = draw.tensor(shape), draw.tensor(shape)
    options = {"exclusive": draw.integer(0, 1) == 1, "reverse": draw.integer(0, 1) == 1}
    return Layer([data, int32(axis)], [out], options)


def draw_fill(draw: Draw) -> Layer:
    shape = draw.shape(draw.integer(1, 4))
    data = draw.tensor(())
    return Layer([int32(shape), data], [draw.like(data, shape)])


def draw_shape(draw: Draw) -> Layer:
    data = draw.tensor(draw.shape(draw.integer(1, 4)))
    return Layer([data], [Spec((len(data.shape),), "int32")], {"out_type": 2})


def draw_tile(draw: Draw) -> Layer:
    shape = draw.shape(draw.integer(1, 4), 4)
    counts = [draw.integer(1, 3) for _ in shape]
    data = draw.tensor(shape)
    result_shape = [extent * count for extent, count in zip(shape, counts, strict=True)]
    return Layer([data, int32(counts)], [draw.like(data, result_shape)])


def draw_update(draw: Draw) -> Layer:
    shape = draw.shape(draw.integer(1, 4))
    part = [draw.integer(1, extent) for extent in shape]
    start = [draw.integer(0, extent) for extent in shape]
    data = draw.tensor(shape)
    return Layer([data, draw.like(data, part), int32(start)], [draw.like(data, shape)])


def draw_lookup(draw: Draw) -> Layer:
    rows, depth = draw.integer(1, 6), draw.integer(1, 5)
    indices = draw.random.integers(0, rows, draw.integer(1, 5))
    data = draw.tensor((rows, depth))
    table = replace(data, data=draw.values((rows, depth), data))
    return Layer([int32(indices), table], [draw.like(data, (len(indices), depth))])


def draw_add_n(draw: Draw) -> Layer:
    shape, count = draw.shape(draw.integer(1, 4)), draw.integer(2, 4)
    out = draw.tensor(shape)
    return Layer([draw.tensor(shape) for _ in range(count)], [out])
