# SPDX-License-Identifier: Apache-2.0
"""A program of ``torch.export`` as a Relax module: TVM's importer, which names here all that it cannot read."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from utvm.compiler.library import ELEMENT_TYPES
from utvm.compiler.read.torch_quantised import converters
from utvm.compiler.refusal import refuse
from utvm.errors import UtvmError

_LOG = logging.getLogger("utvm.compiler")
_HELP = "replace them in the model, or export it as ONNX; docs/operators.md says what is supported"


def import_program(program: Any) -> Any:
    """Turn a ``torch.export.ExportedProgram`` into a Relax module.

    Raises:
        CompileError: operators are not supported, or used in a way that is not; all of them are named.
    """
    program = program.run_decompositions()
    importer = _Importer()
    try:
        module = importer.from_exported_program(program, False, True, False, dict(converters(program)))
    finally:
        refuse("", importer.reasons, _HELP)
    return module


class _Importer(ExportedProgramImporter):  # type: ignore[misc]
    """Imports one program. The base class calls methods by the names they have here.

    Attributes:
        reasons: why nodes could not be read; what is made of the others is of no use then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reasons: list[str] = []

    def _check_unsupported_func_type(self, nodes: Iterable[Any]) -> None:
        """Have every converter go on with a stand-in where it fails, and one for those that are missing."""
        for name in {node.target.__name__ for node in nodes if node.op == "call_function"}:
            self.convert_map[name] = self._noting(self.convert_map.get(name))

    def _noting(self, convert: Callable[..., Any] | None) -> Callable[..., Any]:
        def converted(node: Any, *others: Any) -> Any:
            where = f"{node.target.__name__} (at {node.name})"
            try:
                if convert is not None:
                    return convert(node, *others)
                self.reasons.append(f"{where}: the operator is not supported")
            except UtvmError as error:
                self.reasons.append(f"{where}: {error.message.removeprefix(f'{node.name}: ')}")
            except Exception as error:  # TVM raises nearly every built-in kind, and its own
                _LOG.debug("%s: %r", where, error)
                self.reasons.append(f"{where}: is used in a way that is not supported")
            made = node.meta["val"]
            parts = [self._stand_in(each) for each in (made if isinstance(made, tuple | list) else [made])]
            return tuple(parts) if isinstance(made, tuple | list) else parts[0]

        return converted

    def _stand_in(self, made: Any) -> Any:
        """Return zeros in place of what a node gives, so that the nodes behind it are looked at, too."""
        stated = str(made.dtype).removeprefix("torch.")
        dtype = stated if stated in ELEMENT_TYPES else "float32"
        return self.block_builder.emit(relax.op.zeros([int(extent) for extent in made.shape], dtype))
