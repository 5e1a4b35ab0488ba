"""AdaComp (Hardy, Le Merrer, Sericola, 2017): its experiments, and the record of compression.

experiments.py has the experiments, report.py their results and the comparison with the paper, and
reproduce.py runs all of it. Other packages use only reproduce_adacomp. May import the common parts of papers
and emulation, and no other paper.
"""

from edgeflock.papers.adacomp.reproduce import reproduce_adacomp
