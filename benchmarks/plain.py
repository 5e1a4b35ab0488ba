"""Settings of benchmarks whose figures are of AdaComp as published, as --set takes them."""

from edgeflock.papers.reproduce import AS_PUBLISHED

PLAIN = [f"{key}={value}" for key, value in AS_PUBLISHED.items()]
FOUR_BITS = [*PLAIN, "compression.select=0.01", "compression.values=codebook4"]
"""A hundredth of each tensor, in four bits a value."""
EXACT = [setting for setting in PLAIN if not setting.startswith("compression.")]
"""Where updates are ready-made: what else the server does."""
