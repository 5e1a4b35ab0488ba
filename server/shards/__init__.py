"""The model in slices, each in a process of its own: theta, staleness and optimizer of some parameters.

`open_place` places a run's parameters as the `scale` settings say. sharded.py cuts the model and sends
each step's slices in the order of versions and gathers the answers. `Placement` is the interface to whatever
runs shards: Ray (rays.py, which alone imports it). A shard does what descent/part.py does without shards.
Imports descent and shared.
"""

from edgeflock.server.shards.placing import open_place
from edgeflock.server.shards.sharded import Placement, Sharded
