"""Data that both ends must read alike: data sets by URI (datasets), rates of streams (rates) and how they
change (curves), pages of what arrived last (recent), and
what became of a stream's samples (account). A new stored format is a reader in datasets.py's
table. Imports errors.
"""
