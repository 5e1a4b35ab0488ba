"""Apply revocations that commands write to the register while the server runs: end those sessions."""

import asyncio

from edgeflock.server.http.watchers import Watchers
from edgeflock.server.identity import Register
from edgeflock.server.roster import Registry
from edgeflock.server.sessions import Gateways
from edgeflock.shared.errors import Unauthorized

LOOK = 0.25
"""Seconds between two checks. A check takes microseconds if nothing was written."""


async def turn_out(register: Register, registry: Registry, watchers: Watchers, gateways: Gateways) -> None:
    """Check the register for as long as the server lives."""
    seen = register.changes
    _tell_quarantines(register, registry)
    while True:
        await asyncio.sleep(LOOK)
        register.refresh()
        await gateways.turn_out(register.opens)
        if seen != register.changes:
            seen = register.changes
            _tell_quarantines(register, registry)
            await asyncio.gather(
                watchers.turn_out(), *(_look(register, name, registry) for name in list(registry.devices))
            )


def _tell_quarantines(register: Register, registry: Registry) -> None:
    """Copy the register's quarantines to the devices, for monitors. They may be older than a restart."""
    for name, device in registry.devices.items():
        quarantine = register.quarantines.get(name)
        device.conduct.quarantined_until = 0.0 if quarantine is None else quarantine.until


async def _look(register: Register, name: str, registry: Registry) -> None:
    line = registry.devices[name].connection.line
    if line is None or not line.credential:
        return
    if not register.holds(name, line.credential):
        await line.drop(Unauthorized(f"the credential of {name!r} was revoked; join anew with a new token"))
    elif register.is_to_rotate(name, line.credential):
        await line.leave()  # on its return the server asks it to rotate its key
