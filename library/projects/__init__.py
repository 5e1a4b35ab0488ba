"""A project: a new folder of small files (beginning.py), and its checks (checking.py).

Imports server, client and shared.
"""
