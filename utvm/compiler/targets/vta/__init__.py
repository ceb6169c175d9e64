# SPDX-License-Identifier: Apache-2.0
"""Operators for the accelerator VTA: TIRx whose buffers lie on the chip becomes calls of VTA's driver.

What a statement is follows from where its buffers are: from DRAM to the chip is a load, from the chip to DRAM a
store, a product of inputs and weights a GEMM, and what stays among accumulators an ALU operation.
"""
