"""Indices and values as bytes: sparse.py, values.py, and grid.py for signs with indices.

Others use the modules (`sparse.encode`, `values.decode`, `grid.decode`) and the tables `sparse.CODINGS`,
`values.CODINGS`. A new coding is a pair of functions and an entry there; its laws are in tests/laws.py.
Other packages bring theirs (others.py). numpy alone says what is right, numba (compiled.py), where it is
installed, says the same faster. Imports model, plugins and errors.
"""
