# SPDX-License-Identifier: Apache-2.0
"""A checked model as classes of the package ``tflite``, for TVM's importer: unique names, all fields set."""
# ruff: noqa: N802

from typing import Any

import flatbuffers.table
import numpy as np
import numpy.typing as npt
import tflite

from utvm.compiler.read.tflite_records import TfliteGraph, TfliteOperator, TfliteTensor


class TensorView:
    """Stands for ``tflite.Tensor``."""

    def __init__(self, tensor: TfliteTensor, number: int, dtype: str | None = None) -> None:
        self.record = tensor
        self.number = number
        self._dtype = dtype or tensor.dtype

    def Name(self) -> bytes:
        return b"tensor_%d" % self.number

    def ShapeAsNumpy(self) -> npt.NDArray[np.int32]:
        return np.array(self.record.shape, np.int32)

    def ShapeLength(self) -> int:
        return len(self.record.shape)

    def Type(self) -> int:
        return int(getattr(tflite.TensorType, self._dtype.upper()))

    def Buffer(self) -> int:
        return self.number

    def Quantization(self) -> "TensorView | None":
        return None if self.record.quantisation is None else self

    def ScaleLength(self) -> int:
        return 0 if self.record.quantisation is None else self.record.quantisation.scales.size


class BufferView:
    """Stands for ``tflite.Buffer``; every tensor has its own."""

    def __init__(self, data: npt.NDArray[Any]) -> None:
        self._data = data.reshape(-1).view(np.uint8)

    def DataAsNumpy(self) -> npt.NDArray[np.uint8]:
        return self._data

    def DataLength(self) -> int:
        return int(self._data.size)


class OperatorView(tflite.Operator):  # type: ignore[misc]
    """Stands for ``tflite.Operator``."""

    def __init__(self, operator: TfliteOperator, content: bytes) -> None:
        self.record = operator
        self._content = content

    def InputsAsNumpy(self) -> npt.NDArray[np.int32]:
        return np.array(self.record.inputs, np.int32)

    def OutputsAsNumpy(self) -> npt.NDArray[np.int32]:
        return np.array(self.record.outputs, np.int32)

    def BuiltinOptionsType(self) -> int:
        return self.record.options_type if self.record.options else 0

    def BuiltinOptions(self) -> Any:
        return self.record.options and flatbuffers.table.Table(self._content, self.record.options.place)


class GraphView:
    """Stands for ``tflite.SubGraph``."""

    def __init__(self, graph: TfliteGraph, content: bytes) -> None:
        self.record = graph
        self.content = content

    def Tensors(self, number: int) -> TensorView:
        return TensorView(self.record.tensors[number], int(number))

    def Inputs(self, number: int) -> int:
        return int(self.InputsAsNumpy()[number])

    def InputsLength(self) -> int:
        return int(self.InputsAsNumpy().size)

    def TensorsLength(self) -> int:
        return len(self.record.tensors)

    def InputsAsNumpy(self) -> npt.NDArray[np.int32]:
        """Return the model's inputs, followed by the states it reads."""
        return np.array([*self.record.inputs, *(state.read for state in self.record.states)], np.int32)

    def OutputsAsNumpy(self) -> npt.NDArray[np.int32]:
        """Return the model's outputs, followed by the states it writes."""
        return np.array([*self.record.outputs, *(state.written for state in self.record.states)], np.int32)

    def operators(self) -> list[OperatorView]:
        return [OperatorView(operator, self.content) for operator in self.record.operators]


class ModelView(tflite.Model):  # type: ignore[misc]
    """Stands for ``tflite.Model``."""

    def __init__(self, graph: TfliteGraph, content: bytes) -> None:
        self._graph = GraphView(graph, content)

    def Subgraphs(self, number: int) -> GraphView:
        return self._graph

    def SubgraphsLength(self) -> int:
        return 1
