"""Communication efficient distributed SGD (Svoboda, Aggarwal): its methods, models and links.

settings.py says with what, data.py on what, experiments.py what is run, results.py what it came to, report.py
how that is written beside the paper's numbers; reproduce.py is the way through. Outside, only reproduce_easgd
is used. May import what papers have in common and emulation, and no other paper.
"""

from edgeflock.devices.papers.easgd.reproduce import reproduce_easgd

__all__ = ["reproduce_easgd"]
