# SPDX-License-Identifier: Apache-2.0
"""The table of TensorFlow Lite's operators that are written here as its kernels compute them, in integers.

What the frontend can say in Relax's operators becomes these; the rest, where a bit would differ or Relax has no
operator, is a TIRx function of its own. The functions are found in the folder ``integer/tflite``, not listed.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import flatbuffers.table

from utvm.compiler.read.tflite_records import TfliteOperator, TfliteTensor
from utvm.errors import CompileError

FOLDER = "utvm.compiler.integer.tflite"


@dataclass(frozen=True)
class Use:
    """One use of an operator in a model.

    Attributes:
        operator: the file's record.
        inputs: of the operands; None for one that is left out.
        outputs: of the results.
        content: the file.
        value: the operand's elements, where it is a constant; None where it is not.
        builder: of the Relax module.
    """

    operator: TfliteOperator
    inputs: tuple[TfliteTensor | None, ...]
    outputs: tuple[TfliteTensor, ...]
    content: bytes
    value: Callable[[int], Any]
    builder: Any

    @property
    def result(self) -> TfliteTensor:
        """The first result."""
        return self.outputs[0]

    def input(self, number: int) -> TfliteTensor:
        """Return an operand's record."""
        tensor = self.inputs[number] if number < len(self.inputs) else None
        if tensor is None:
            raise CompileError(f"its operand {number} is missing")
        return tensor

    def has(self, number: int) -> bool:
        """Return whether there is such an operand."""
        return number < len(self.inputs) and self.inputs[number] is not None

    def dtype(self, number: int = 0) -> str:
        """Return the element type of an operand."""
        return self.input(number).dtype

    def constant(self, number: int) -> Any:
        """Return the elements of an operand that must be constant."""
        array = self.value(number)
        if array is None:
            raise CompileError(f"its operand {number} must be constant")
        return array

    def options(self, table: Any) -> Any:
        """Return the options as the schema's table; its defaults where the file has none."""
        options = table()
        if self.operator.options is None:
            empty = flatbuffers.Builder(16)
            empty.StartObject(0)
            empty.Finish(empty.EndObject())
            root = bytes(empty.Output())
            options.Init(root, int.from_bytes(root[:4], "little"))
        else:
            options.Init(self.content, self.operator.options.place)
        return options


def check_states(use: Use, places: tuple[int, ...]) -> None:
    """Refuse states that are no variables."""
    if len(use.outputs) != 1 + len(places):
        raise CompileError(f"its operands {', '.join(map(str, places))} must be variable tensors")


Kernel = Callable[[Use, list[Any]], Any]
"""Given a use and the expressions of its operands, returns the Relax expression of the result; None if it is not
for this one, but to be imported as other operators are."""


def tflite_kernels() -> Mapping[str, Kernel]:
    """Return operator, as the schema names it, to kernel, from the files of the folder. Imports TVM."""
    kernels: dict[str, Kernel] = {}
    for name in sorted(each.name for each in pkgutil.iter_modules(importlib.import_module(FOLDER).__path__)):
        kernels.update(getattr(importlib.import_module(f"{FOLDER}.{name}"), "KERNELS", {}))
    return kernels
