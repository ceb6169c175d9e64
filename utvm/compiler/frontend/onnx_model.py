# SPDX-License-Identifier: Apache-2.0
"""From an ONNX model to a Relax module: TVM's importer, with quantised operators of our own."""

from collections.abc import Sequence
from typing import Any

import onnx
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, _get_convert_map

from utvm.compiler.frontend.imported import Imported
from utvm.compiler.frontend.onnx_quantised import CONVERTERS
from utvm.compiler.model import Model
from utvm.compiler.read.onnx_validate import unsupported_operators
from utvm.errors import CompileError


def import_onnx(model: Model) -> Imported:
    """Turn an ONNX model into a Relax module.

    Raises:
        CompileError: an operator is not supported, or used in a way that is not.
    """
    proto = onnx.load_from_string(model.content)
    unsupported = unsupported_operators(proto, {*_get_convert_map(), *CONVERTERS})
    if unsupported:
        raise CompileError(
            f"{model.origin}: operators that are not supported: {', '.join(unsupported)}",
            "replace them in the model by supported operators",
        )
    opset = next(item.version for item in proto.opset_import if item.domain in ("", "ai.onnx"))
    module = _Importer({}, "float32").from_onnx(proto.graph, opset)
    stored = {item.name for item in proto.graph.initializer}
    return Imported(
        module,
        tuple(item.name for item in proto.graph.input if item.name not in stored),
        tuple(item.name for item in proto.graph.output),
    )


class _Importer(ONNXGraphImporter):  # type: ignore[misc]
    """Imports one graph. The base class calls methods by the names they have here."""

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        """Do nothing: it is known already."""

    def _convert_operator(self, op_name: str, inputs: Sequence[Any], attrs: dict[str, Any], opset: int) -> Any:
        if op_name in CONVERTERS:
            return self.bb.normalize(CONVERTERS[op_name](self.bb, inputs, attrs))
        return super()._convert_operator(op_name, inputs, attrs, opset)
