"""A project of one's own: begun as a folder of small files (beginning.py), and checked before anything joins
(checking.py). Imports numbers, server, client and shared.
"""
