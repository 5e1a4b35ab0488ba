"""ScaDLES (Tyagi, Swany, 2022): its streams, methods and experiments, and the same without rounds.

settings.py says with what, experiments.py what is run, results.py what it came to, report.py and speed_up.py
how that is written beside the paper's numbers; reproduce.py is the way through. Outside, only
reproduce_scadles is used. May import what papers have in common and emulation, and no other paper.
"""

from edgeflock.papers.scadles.reproduce import reproduce_scadles

__all__ = ["reproduce_scadles"]
