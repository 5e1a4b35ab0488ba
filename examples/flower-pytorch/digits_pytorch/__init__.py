"""A small CNN on handwritten digits."""
