# SPDX-License-Identifier: Apache-2.0
"""The Cortex-M of a virtual board.

Unicorn executes the instructions. Exceptions, faults, the interrupt controller, timers and debug are in Python.
Sources: ARM DDI 0403E (Armv7-M Architecture Reference Manual), ARM DDI 0489 (Cortex-M7 Technical Reference
Manual).

Differences from the chip, beyond time: an IT block is not interrupted, and a step executes all of it; a rejected
store is always reported precisely; floating-point registers are stacked eagerly; FPDSCR has no effect; exclusive
accesses are not cleared on exception entry; there is no MPU; the caches are empty.
"""
