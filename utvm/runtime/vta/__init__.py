# SPDX-License-Identifier: Apache-2.0
"""The accelerator VTA, as whoever makes programs for it and whoever runs them must agree on it.

:mod:`~utvm.runtime.vta.configuration` says how large it is, :mod:`~utvm.runtime.vta.instructions` what its
instructions look like: one table, from which encoder, decoder and disassembler work.
"""
