# SPDX-License-Identifier: Apache-2.0
"""A software model of the accelerator VTA, with bit-exact results and modelled cycles.

It is C, compiled for the host with the driver from ``utvm/runtime/vta``, and replaces the hardware below the
driver.
"""

from pathlib import Path

MODEL = tuple(sorted(Path(__file__).parent.glob("*.c")))
"""The C files of the model."""
