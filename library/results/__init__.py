"""Results of emulated fleets.

sweep has many runs at once, outcomes their curves and costs, figures draws them, and report writes a page.
Other packages import these modules directly, because figures.py loads matplotlib. Imports devices, shared.
"""
