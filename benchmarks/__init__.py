"""Measurements behind docs/benchmarks.md; run each with `python -m benchmarks.NAME`."""
