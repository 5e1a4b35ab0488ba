"""Differential privacy: what it costs in accuracy (learning.py), and what attacks find (attacks.py)."""
