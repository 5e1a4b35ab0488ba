"""A linear classifier of handwritten digits."""
