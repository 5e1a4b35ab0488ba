"""What devices are sent of theta: all that has changed (exact.py), or the most of it (lossy.py).

A `Publication` is told of every version, and asked what a device needs that holds this or that. Nothing in it
is truth: what it has forgotten costs a device a whole model. `Touches` keeps what changes, for gateways. An
`Outlet` asks both.
Imports descent and shared; engine asks it.
"""

from edgeflock.server.publication.exact import Exact
from edgeflock.server.publication.lossy import Lossy
from edgeflock.server.publication.modes import MODES, publication_of
from edgeflock.server.publication.outlet import Outlet
from edgeflock.server.publication.publication import Publication
from edgeflock.server.publication.touches import Touched, Touches

__all__ = ["MODES", "Exact", "Lossy", "Outlet", "Publication", "Touched", "Touches", "publication_of"]
