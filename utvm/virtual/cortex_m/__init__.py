"""The Armv7-M core of a virtual board: instructions on Unicorn, and around them, in Python, what Unicorn lacks:
exceptions, faults, the interrupt controller, timers and the whole of debug.

Sources: ARM DDI 0403E (Armv7-M Architecture Reference Manual), ARM DDI 0489 (Cortex-M7 Technical
Reference Manual).
"""
