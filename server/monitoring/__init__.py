"""Monitoring of a live run: evaluations, health, the feed, trackers, listeners."""
