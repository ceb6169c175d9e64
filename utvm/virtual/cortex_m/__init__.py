# SPDX-License-Identifier: Apache-2.0
"""The Armv7-M core of a virtual board: instructions on Unicorn, and around them, in Python, what Unicorn lacks:
exceptions, faults, the interrupt controller, timers and the whole of debug.

Where it differs from the chip, beyond time: an IT block is not interrupted, and a step takes it whole; a refused
store is always reported precisely; floating-point registers are stacked eagerly; FPDSCR has no effect; exclusive
accesses are not forgotten on exception entry; there is no MPU, and the caches hold nothing.

Sources: ARM DDI 0403E (Armv7-M Architecture Reference Manual), ARM DDI 0489 (Cortex-M7 Technical
Reference Manual).
"""
