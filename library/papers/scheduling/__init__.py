"""Redundant computation scheduling (Mohammadi Amiri, Gündüz, 2019): average completion times.

delays.py has the delays of tasks. completion.py has the completion times of task-order matrices and coded
schemes, and the lower bound. rounds.py plays rounds whose order is decided during the round. experiments.py
has the experiments, figures.py and report.py their comparison with the paper. reproduce.py runs all of it.
Other packages use only reproduce_scheduling. May import the common parts of papers and server.scheduling, and
no other paper.
"""

from edgeflock.papers.scheduling.reproduce import reproduce_scheduling

__all__ = ["reproduce_scheduling"]
