"""AdaComp (Hardy, Le Merrer, Sericola, 2017): its experiments, the paper's numbers beside ours, the record.

experiments.py says what is run, results.py what it came to, report.py how that is written. Outside, only
reproduce_adacomp is used. May import what papers have in common and emulation, and no other paper.
"""

from edgeflock.devices.papers.adacomp.results import reproduce_adacomp

__all__ = ["reproduce_adacomp"]
