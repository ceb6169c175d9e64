# SPDX-License-Identifier: Apache-2.0
"""The accelerator VTA: its configuration and instructions, shared by compiler, driver and models.

Encoder, decoder and disassembler of :mod:`~utvm.runtime.vta.instructions` work from one table.
"""
