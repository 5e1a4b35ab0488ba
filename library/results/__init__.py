"""Results of emulated fleets: many runs at once (sweep), their curves and costs as data (outcomes, traffic),
as figures (curves) and as a page (report).

`edgeflock fleet` and the papers use sweep.sweep and Job, outcomes.Setting and Outcome, curves.draw and Panel,
report.report. They import these modules directly, because curves.py loads matplotlib. Imports devices,
shared.
"""
