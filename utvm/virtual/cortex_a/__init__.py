# SPDX-License-Identifier: Apache-2.0
"""A virtual Cortex-A9, its debug registers, and what a Zynq has around it."""
