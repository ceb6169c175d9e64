# SPDX-License-Identifier: Apache-2.0
"""A convolution as steps, each of which calls helpers of C."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from utvm.compiler.kernels.functions import THRIFTY, describe
from utvm.compiler.kernels.records import Convolution, Operator


class Pointers(dict[str, Any]):
    """Pointers to the beginnings of what a step reads, and of its own buffers, by name."""

    def __init__(self, read: Mapping[str, Any], written: Mapping[str, Any]) -> None:
        super().__init__({item: buffer.access_ptr("r") for item, buffer in read.items()})
        self.update({item: buffer.access_ptr("rw") for item, buffer in written.items()})
        self._buffers = {**read, **written}

    def to(self, name: str, element: Any) -> Any:
        return tirx.address_of(self._buffers[name][element])


_Body = Callable[[Any, Any, Pointers], None]  # Of a step's number, the output, and pointers to the rest.


def operator_of_steps(
    record: Convolution,
    name: str,
    overlap: tuple[int | None, ...],
    constants: Mapping[str, npt.NDArray[Any]],
    own: Mapping[str, tuple[int, str]],
    steps: int,
    body: _Body,
) -> Operator:
    """Make an operator of helpers' calls, one step after the other."""
    size = int(np.prod(record.output_shape))
    with IRBuilder() as builder, script.prim_func(s_tir=True):
        script.func_name("main")
        read = {"data": script.arg("data", script.Buffer((int(np.prod(record.input_shape)),), "int8"))}
        if record.residual is not None:
            read["other"] = script.arg("other", script.Buffer((size,), "int8"))
        for constant, array in constants.items():
            read[constant] = script.arg(constant, script.Buffer(array.shape, str(array.dtype)))
        output = script.arg("output", script.Buffer((size,), "int8"))
        with script.sblock("root"):
            written = {item: _buffer(item, *what) for item, what in own.items()}
            with script.serial(0, steps) as loop, script.sblock("step"):
                number = script.axis.spatial(steps, loop)
                script.reads(*map(_whole, read.values()))
                script.writes(*map(_whole, (output, *written.values())))
                body(number, output, Pointers(read, written))
    function = describe(builder.get(), name, overlap, record.macs)
    return Operator(function, tuple(constants.values()))


def with_forms(forms: Sequence[Operator]) -> Operator:
    """The first of operators that differ in speed and memory only; each next one needs less memory."""
    operator = forms[-1]
    for form in reversed(forms[:-1]):
        operator = replace(form, function=form.function.with_attr(THRIFTY, operator.function))
    return operator


def _buffer(name: str, elements: int, dtype: str) -> Any:
    buffer = script.sblock_alloc_buffer((elements,), dtype)
    IRBuilder.name(name, buffer)
    return buffer


def _whole(buffer: Any) -> Any:
    return buffer[0 : int(buffer.shape[0])]


def call_helper(helper: str, *arguments: Any) -> None:
    script.evaluate(script.call_extern("int32", helper, *arguments))
