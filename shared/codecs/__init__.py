"""Coding of indices and values as bytes: sparse.py, values.py, and grid.py for signs with indices.

Callers use the modules (`sparse.encode`, `values.decode`, `grid.decode`) and the tables `sparse.CODINGS` and
`values.CODINGS`. A new coding is a pair of functions and a table entry; tests/laws.py has its laws. Other
packages may add codings (others.py). The numpy code defines the result. With numba, compiled code gives the
same result faster (compiled.py, compiled_entries.py, compiled_golomb.py). Imports model, plugins and errors.
"""
