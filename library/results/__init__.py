"""Results of emulated fleets.

sweep has many runs at once, outcomes and traffic their curves and costs, curves figures, and report a page.

`edgeflock fleet` and the papers use sweep.sweep and Job, outcomes.Setting and Outcome, curves.draw and Panel,
report.report. They import these modules directly, because curves.py loads matplotlib. Imports devices,
shared.
"""
