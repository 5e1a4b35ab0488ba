"""Data that both ends must read alike.

`datasets` opens data sets by URI: arrays, tables, images, or a user's own functions; `samples` is common to
them. `rates` has rates of streams and their course; `recent` adds features of the recent past;
`account` counts a stream's samples. A new stored format is a file with a reader, and its scheme in the table
of datasets.py. Imports model's description, extras and errors.
"""
