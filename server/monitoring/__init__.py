"""What is known of a run while it goes on: evaluations, health, the feed, trackers, listeners."""
