# SPDX-License-Identifier: Apache-2.0
"""Int8 depthwise convolutions for cores with the DSP extension: four channels of a pixel at a time."""

from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from utvm.compiler.integer.dsp.packing import folded_bias, geometry, packed_depthwise_weights, settle
from utvm.compiler.integer.kernel import described
from utvm.compiler.integer.records import Convolution, Operator
from utvm.compiler.integer.windows import distance


def make_depthwise_with_dsp(record: Convolution) -> Operator | None:
    """Make the operator, or None where the kernels do not hold for it.

    They hold for one output channel per input channel, channels in fours, no residual, and sums that
    :func:`utvm.compiler.integer.dsp.packing.settle` can bound.

    Args:
        record: depthwise.
    """
    record, table = settle(record)
    channels = record.input_shape[2]
    if table is None or channels % 4 or len(record.bias) != channels or record.residual is not None:
        return None
    if record.dilation != (1, 1):
        return None  # Each window would be copied, which takes longer than what is not copied saves.
    constants = {
        "weights": packed_depthwise_weights(record.weights),
        "bias": folded_bias(record).astype(np.int32),
        "scales": table,
        "geometry": geometry(record),
    }
    overlap = (distance(record, 1, reads_again=True),)
    function = described(_function(record, constants), "depthwise_conv2d_int8", overlap, record.macs)
    return Operator(function, tuple(constants.values()), overlap, record.macs)


def _function(record: Convolution, constants: dict[str, npt.NDArray[np.int32]]) -> Any:
    height, width, channels = record.output_shape
    size = int(np.prod(record.input_shape))
    with IRBuilder() as builder, script.prim_func(s_tir=True):
        script.func_name("main")
        data = script.arg("data", script.Buffer((size,), "int8"))
        tables = {name: script.arg(name, script.Buffer(array.shape, "int32")) for name, array in constants.items()}
        output = script.arg("output", script.Buffer((height * width * channels,), "int8"))
        with script.sblock("root"):
            window = script.sblock_alloc_buffer((record.weights[0].size * channels,), "int8")
            IRBuilder.name("window", window)
            with script.serial(0, height) as loop, script.sblock("row"):
                row = script.axis.spatial(height, loop)
                script.reads(data[0:size])
                script.writes(output[0 : height * width * channels], window[0 : record.weights[0].size * channels])
                read = {name: buffer.access_ptr("r") for name, buffer in tables.items()}
                script.evaluate(
                    script.call_extern(
                        "int32",
                        "depthwise_row",
                        tirx.address_of(output[row * (width * channels)]),
                        data.access_ptr("r"),
                        read["geometry"],
                        window.access_ptr("rw"),
                        row,
                        read["weights"],
                        read["bias"],
                        read["scales"],
                        record.low,
                        record.high,
                    )
                )
    return builder.get()
