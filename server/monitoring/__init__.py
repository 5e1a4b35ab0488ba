"""Monitoring of a live run: health, the feed, the guard, trackers, listeners."""
