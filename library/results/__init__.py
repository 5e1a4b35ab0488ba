"""What emulated fleets came to: many runs at once (sweep), their curves and what they cost as data
(outcomes, traffic), as figures (curves) and as a page (report).

`edgeflock fleet` and the papers use sweep.sweep and Job, outcomes.Setting and Outcome, curves.draw and Panel,
report.report; by file, since curves.py brings matplotlib. Imports devices and shared.
"""
