"""Loop schedules: how an operator's loops are arranged before they are lowered.

What is done here never changes a result, not even its last bit: every sum of floats keeps its order.
"""

from utvm.compiler.schedule.elementwise import schedule

__all__ = ["schedule"]
