"""The jobs that benchmarks/flower.py measures."""
