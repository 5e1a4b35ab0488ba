"""How theta moves by a step, as `Parameters` asks it of a `Way` (way.py): plainly, or by an optimizer.

What a way knows is of steps as a whole; what is done to each parameter is asked of the vectors (part.py).
Imports the rest of descent, of which only parameters.py knows ways.
"""

from edgeflock.server.descent.ways.optimized import Optimized
from edgeflock.server.descent.ways.plain import Plain
from edgeflock.server.descent.ways.way import Way

__all__ = ["Optimized", "Plain", "Way"]
