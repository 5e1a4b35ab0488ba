"""Communication efficient distributed SGD (Svoboda, Aggarwal): its methods, models and links.

settings.py says with what, data.py on what, experiments.py what is run, results.py what it came to, report.py
how that is written beside the paper's numbers. policies.py and policies_report.py have section 4.1, whose
workers learn by acting. reproduce.py runs both. Outside, only its two functions are used. May import what
papers have in common and emulation, and no other paper.
"""

from edgeflock.devices.papers.easgd.reproduce import reproduce_easgd, reproduce_easgd_rl

__all__ = ["reproduce_easgd", "reproduce_easgd_rl"]
