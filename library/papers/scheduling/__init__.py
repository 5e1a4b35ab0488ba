"""Redundant computation scheduling (Mohammadi Amiri, Gündüz, 2019): average completion times.

delays.py says how long tasks take, completion.py what the completion time of any task-order matrix is, of
coded schemes, and the least there can be; rounds.py plays rounds of an order that is decided on the way.
experiments.py says what is looked at, figures.py and report.py how that is shown beside the paper;
reproduce.py is the way through. Outside, only reproduce_scheduling is used. May import what papers have in
common, server.scheduling, and no other paper.
"""

from edgeflock.papers.scheduling.reproduce import reproduce_scheduling

__all__ = ["reproduce_scheduling"]
