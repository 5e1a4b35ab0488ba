"""Apply revocations that commands write to the register while the server runs: end those sessions."""

import asyncio

from edgeflock.server.http.watchers import Watchers
from edgeflock.server.identity import Register
from edgeflock.server.roster import Registry
from edgeflock.server.sessions import Gateways
from edgeflock.shared.errors import Unauthorized

CHECK_SECONDS = 0.25
"""Seconds between two checks. A check takes microseconds if nothing was written."""


async def enforce(register: Register, registry: Registry, watchers: Watchers, gateways: Gateways) -> None:
    """Check the register for as long as the server lives."""
    seen = register.changes
    _copy_quarantines(register, registry)
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        register.refresh()
        await gateways.close_revoked(register.is_valid_token)
        if seen != register.changes:
            seen = register.changes
            _copy_quarantines(register, registry)
            await asyncio.gather(
                watchers.close_revoked(),
                *(_check(register, name, registry) for name in list(registry.devices)),
            )


def _copy_quarantines(register: Register, registry: Registry) -> None:
    """Copy the register's quarantines to the devices, for monitors. They may be older than a restart."""
    for name, device in registry.devices.items():
        quarantine = register.quarantines.get(name)
        device.conduct.quarantined_until = 0.0 if quarantine is None else quarantine.until


async def _check(register: Register, name: str, registry: Registry) -> None:
    session = registry.devices[name].connection.session
    if session is None or not session.credential:
        return
    if not register.is_valid_credential(name, session.credential):
        await session.drop(Unauthorized(f"the credential of {name!r} was revoked; join with a new token"))
    elif register.is_to_rotate(name, session.credential):
        await session.leave()  # on its return the server asks it to rotate its key
