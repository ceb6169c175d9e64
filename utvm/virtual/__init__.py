# SPDX-License-Identifier: Apache-2.0
"""Virtual boards: software models of a CPU, its memory map, its peripherals and its debug port.

Unmodified debuggers drive them over TCP, like a real board through a probe. Time is virtual: an instruction is one
tick of the core clock, so results are reproducible instruction counts, not time.
"""
