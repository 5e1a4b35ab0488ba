"""A weighting rule, a loss, a source, a coding, a coordinator, an optimizer: names in settings."""
