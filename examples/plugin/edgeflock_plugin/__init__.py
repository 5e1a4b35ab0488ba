"""A weighting rule, a loss and a data source, each a name in the settings of Edgeflock."""
