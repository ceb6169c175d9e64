# SPDX-License-Identifier: Apache-2.0
"""Virtual boards: software models of a CPU, its memory map, its peripherals and its debug port.

Unmodified debuggers drive them over TCP, as they drive a real board through a probe. Time is virtual: an
instruction is one tick of the core clock. Two runs agree to the instruction; results are instruction counts, not
time. Boards are specified by a :class:`utvm.virtual.spec.MachineSpec`.
"""
