"""Papers' evaluations as fleets: what `edgeflock reproduce` runs, a folder a paper.

A paper's door is its folder's: adacomp.reproduce_adacomp, scadles.reproduce_scadles,
scheduling.reproduce_scheduling. This one opens none: they bring matplotlib, and benchmarks come here for
machine.machine alone. What papers have in common is in reproduce.py: methods, experiments, what was
measured, and where results are left. May import results and what stands below it.
A new paper is a folder here and its name in cli/reproduce.py.
"""
