"""Data that both ends must read alike: data sets by URI (datasets: arrays, tables, images, functions of one's
own; samples is what they have in common), rates of streams (rates) and how they change (curves), pages of
what arrived last (recent), and what became of a stream's samples (account). A new stored format is a file
with a reader, and its scheme in the table of datasets.py. Imports model's description, extras and errors.
"""
