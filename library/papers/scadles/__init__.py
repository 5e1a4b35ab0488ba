"""ScaDLES (Tyagi, Swany, 2022): its streams, methods and experiments, and the same without rounds.

settings.py has the methods and streams, experiments.py the experiments, results.py their results. report.py
and speed_up.py compare them with the paper, and reproduce.py runs all of it. Other packages use only
reproduce_scadles. May import the common parts of papers and emulation, and no other paper.
"""

from edgeflock.papers.scadles.reproduce import reproduce_scadles
