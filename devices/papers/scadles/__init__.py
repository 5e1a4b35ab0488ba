"""ScaDLES (Tyagi, Swany, 2022): its streams, methods and experiments, the paper's numbers beside ours.

settings.py says with what, experiments.py what is run, results.py what it came to, report.py and speed_up.py
how that is written. Outside, only reproduce_scadles is used. May import what papers have in common and
emulation, and no other paper.
"""

from edgeflock.devices.papers.scadles.results import reproduce_scadles

__all__ = ["reproduce_scadles"]
