# SPDX-License-Identifier: Apache-2.0
"""What no kernel of a kind can do without on a core: the instructions of its products alone, no load counted."""

import re
from dataclasses import dataclass

from utvm.compiler.library import Call
from utvm.compiler.target import Target


@dataclass(frozen=True)
class Floor:
    """The floor of one kind of kernel.

    Attributes:
        kernels: expression for how their names begin; of what has none, an empty name.
        rows: expression for what the toolchain's row of a core has in it.
        a_mac: instructions a multiply-accumulate.
        source: by what, and where that is said.
    """

    kernels: str
    rows: str
    a_mac: float
    source: str


FLOORS = (
    Floor("MVE", "", 1 / 16, "VMLADAVA.S8: 16 products and their sum (ARM DDI 0553, C2.4)"),
    Floor("NEON", "", 1 / 8, "VMULL.S8: eight products (ARM DDI 0406C, A8.8)"),
    Floor("DSP", "", 1 / 2, "SMLAD: two products and their sum (ARM DDI 0403E, A7.7)"),
    Floor("plain C", "cortex-m0|cortex-m23", 1.0, "MULS of two packed numbers, ADDS (ARM DDI 0419, A6.7)"),
    Floor("plain C", "rv32|rv64", 1.0, "MUL of two packed numbers, ADD (RISC-V, volume I)"),
    Floor("plain C", "", 1 / 2, "MLA of two packed numbers (ARM DDI 0403E, A7.7)"),
    Floor("", "fpv|cortex-a|rv32imaf|rv64imaf", 2.0, "a product and a sum, rounded each: no fused multiply-add"),
)
"""The first that fits is a kernel's. Floats on a core without a unit for them have none."""


def floor_of(call: Call, target: Target) -> float | None:
    """Return the instructions that a multiply-accumulate of a step takes at least; None where not known."""
    if not call.macs or ("int8" in call.kind and not call.kernel):
        return None
    fitting = (each for each in FLOORS if re.match(each.kernels, call.kernel) and re.search(each.rows, target.row))
    return next((each.a_mac for each in fitting), None)
