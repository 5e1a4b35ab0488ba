"""A weighting rule, a loss, a source, a coding and a coordinator, each a name in Edgeflock's settings."""
