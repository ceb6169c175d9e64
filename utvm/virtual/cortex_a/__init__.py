# SPDX-License-Identifier: Apache-2.0
"""A virtual Zynq: Cortex-A9 cores with their debug registers, and peripherals."""
