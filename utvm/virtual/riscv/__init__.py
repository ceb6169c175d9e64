# SPDX-License-Identifier: Apache-2.0
"""A virtual RISC-V hart, its debug module, and what Spike's machine has around them."""
