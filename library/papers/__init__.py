"""Papers' evaluations as fleets: `edgeflock reproduce`, with a folder for each paper.

Each folder exports its functions: adacomp.reproduce_adacomp, scadles.reproduce_scadles,
scheduling.reproduce_scheduling. This file imports none of them, because they load matplotlib, and benchmarks
use only machine.machine. reproduce.py has the common parts: methods, experiments, measurements, and where
results are kept. May import results and the packages below it. A new paper is a folder here and its name in
cli/fleet.py.
"""
