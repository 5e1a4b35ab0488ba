"""Damage done with method, for tests and for `python -m benchmarks.fuzz`: valid bytes, of which a seeded
generator changes a field here and a byte there. What ever broke something is kept in tests/data/corpus.
"""
