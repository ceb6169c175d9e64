# SPDX-License-Identifier: Apache-2.0
"""A software model of the accelerator VTA: what it computes bit for bit, and how long it would take, modelled.

It is C, compiled for this computer together with the driver from ``utvm/runtime/vta``, whose register access it
stands for. It is handed a configuration and knows no board.
"""

from pathlib import Path

MODEL = tuple(sorted(Path(__file__).parent.glob("*.c")))
"""The C files of the model, which stand in the place of the hardware behind the driver."""
