"""The downlink: devices are sent all that has changed of theta (exact.py), or most of it (lossy.py).

A `Publication` receives every version, and returns what a device needs to update its replica. It is only a
cache: if it loses a replica, the device is sent a whole model. `ChangeRecorder` records changes for
gateways. An `Outlet` uses both. Imports descent and shared; the engine uses it.
"""

from edgeflock.server.publication.exact import Exact
from edgeflock.server.publication.lossy import Lossy
from edgeflock.server.publication.modes import (
    MODES,
    ChangeRecorder,
    Changes,
    Outlet,
    Publication,
    publication_of,
)
