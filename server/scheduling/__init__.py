"""Redundant computation scheduling: which device computes which task, and in which order.

M. Mohammadi Amiri, D. Gündüz, "Computation scheduling for distributed machine learning with straggling
workers", 2019.

    planning     the fewest seconds until enough distinct tasks are done, and who computes which
    assignments  one round: which device holds, computes and has done what; assigns the next task

The paper's fixed orders take longer wherever we measured (docs/stragglers.md). Pure: time is an argument.
"""

from edgeflock.server.scheduling.assignments import Assignments
