"""AdaComp (Hardy, Le Merrer, Sericola, 2017): its experiments, and the record of compression.

experiments.py says what is run, results.py what it came to, report.py how that is written beside the paper's
numbers; reproduce.py is the way through. Outside, only reproduce_adacomp is used. May import what papers have
in common and emulation, and no other paper.
"""

from edgeflock.papers.adacomp.reproduce import reproduce_adacomp

__all__ = ["reproduce_adacomp"]
