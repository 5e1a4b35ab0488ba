"""Papers' evaluations as fleets: what `edgeflock reproduce` runs, a folder a paper.

A paper's door is its folder's: adacomp.reproduce_adacomp, scadles.reproduce_scadles. This one opens neither,
since both bring matplotlib, and benchmarks come here for machine.machine alone. What all papers have in common is
in reproduce.py: methods, experiments, what was measured, and where results are left.
May import emulation and edgeflock.shared.
"""
