"""The model in slices, each a process of its own: theta, staleness and optimizer of some parameters.

`placed` says where what a run keeps of parameters lies, as `scale` in its settings asks. slices.py cuts,
sharded.py sends each step's slices in the order of the versions and gathers, placement.py is the seam to
whatever runs shards: this process, or Ray (rays.py, which alone imports it). What a shard does is
descent/part.py, as without shards. Imports descent and shared.
"""

from edgeflock.server.shards.placement import Here, Placement
from edgeflock.server.shards.placing import placed
from edgeflock.server.shards.sharded import Sharded

__all__ = ["Here", "Placement", "Sharded", "placed"]
