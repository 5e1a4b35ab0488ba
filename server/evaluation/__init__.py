"""Evaluation of the model: on held-out data by metrics, in episodes, and on devices; and the best model."""
