"""A project of one's own: begun as a folder of small files (beginning.py), and checked before anything joins
(checking.py). Imports server, client and shared.
"""
