"""Softmax regression on handwritten digits."""
