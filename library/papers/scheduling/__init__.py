"""Redundant computation scheduling (Mohammadi Amiri, Gündüz, 2019): average completion times.

completion.py has the delays of tasks, the completion times of task-order matrices and coded schemes, and the
lower bound. experiments.py has the experiments, and plays rounds whose order is decided during the round.
report.py compares them with the paper. reproduce.py runs all of it.
Other packages use only reproduce_scheduling. May import the common parts of papers and server.scheduling, and
no other paper.
"""

from edgeflock.papers.scheduling.reproduce import reproduce_scheduling
