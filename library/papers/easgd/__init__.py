"""Communication efficient distributed SGD (Svoboda, Aggarwal): its methods, models and links.

    settings.py         methods, models, links, and the experiments
    report.py           results, tables, and figures 2 and 3
    policies.py         section 4.1: workers that learn by acting
    policies_report.py  its tables and figures 4 and 5
    reproduce.py        prepares data sets, and runs all of it

Outside, only the two functions of reproduce.py are used. May import what papers have in common and emulation,
and no other paper.
"""

from edgeflock.papers.easgd.reproduce import reproduce_easgd, reproduce_easgd_rl
