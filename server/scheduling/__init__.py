"""Redundant computation scheduling: which device computes which task, and in which order.

M. Mohammadi Amiri, D. Gündüz, "Computation scheduling for distributed machine learning with straggling
workers", 2019.

    matrices     fixed orders: cyclic, staircase, random
    planning     the fewest seconds until enough distinct tasks are done, and who computes which
    assignments  one round: which device holds, computes and has done what; assigns the next task

A new order is a function in assignments.py and its name in ORDERS. Pure: time and randomness are arguments.
"""

from edgeflock.server.scheduling.assignments import ORDERS, Assignments
from edgeflock.server.scheduling.matrices import cyclic, staircase
