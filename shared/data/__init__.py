"""Data that both ends must read alike: data sets by URI (datasets), rates of streams (rates) and how they
change (curves), and pages of what arrived last (recent). A new stored format is a reader in datasets.py's
table. Imports errors.
"""
