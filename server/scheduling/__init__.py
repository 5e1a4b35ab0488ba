"""Which device computes which task, and in which order: redundant computation scheduling (M. Mohammadi Amiri,
D. Gündüz, "Computation scheduling for distributed machine learning with straggling workers", 2019).

    matrices     orders that are fixed before anything is known: cyclic, staircase, random
    speeds       what a device's last tasks say of how long its next one takes
    planning     the fewest seconds in which enough distinct tasks can be there, and who computes which
    assignments  one round of it: who holds what, what is done, who is at what; hands out the next task

A new order is a function in assignments.py and its name in ORDERS. Pure: time and randomness are arguments.
"""

from edgeflock.server.scheduling.assignments import ORDERS, Assignments
from edgeflock.server.scheduling.matrices import cyclic, random_assignment, staircase

__all__ = ["ORDERS", "Assignments", "cyclic", "random_assignment", "staircase"]
