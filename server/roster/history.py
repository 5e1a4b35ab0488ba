"""A device's recent updates, in bounded space."""

import struct

from edgeflock.shared.protocol.frames import Point, finite_or_none

_POINT = struct.Struct("<dfIQ")
"""The fields: time, loss, staleness, bytes."""

LONG, SHORT = 200, 64
"""Points that are kept of each device, in a small fleet and in a large one."""

SMALL_FLEET, LARGE_FLEET = 1_000, 10_000
"""Numbers of devices. Larger fleets have no histories: 64 points of 10,000 devices take 15 MB."""


class History:
    """The newest points. `add` allocates no memory."""

    __slots__ = ("_added", "_points")

    def __init__(self, size: int) -> None:
        self._points = bytearray(size * _POINT.size)
        self._added = 0

    @classmethod
    def from_fleet_size(cls, devices: int) -> "History | None":
        """The history of one device in a fleet of that size. None: the fleet is too large."""
        if devices > LARGE_FLEET:
            return None
        return cls(LONG if devices <= SMALL_FLEET else SHORT)

    def add(self, time: float, loss: float, staleness: int, octets: int) -> None:
        """Add an update: Unix time, loss of the batch, tau, bytes received from the device until then."""
        offset = self._added * _POINT.size % len(self._points)
        try:
            _POINT.pack_into(self._points, offset, time, loss, min(staleness, 0xFFFFFFFF), octets)
        except OverflowError:  # a loss that no float32 holds
            _POINT.pack_into(self._points, offset, time, float("inf"), min(staleness, 0xFFFFFFFF), octets)
        self._added += 1

    def points(self) -> list[Point]:
        """The points, oldest first."""
        size = len(self._points) // _POINT.size
        points = []
        for number in range(max(0, self._added - size), self._added):
            time, loss, tau, octets = _POINT.unpack_from(self._points, number % size * _POINT.size)
            points.append(Point(time, finite_or_none(loss), tau, octets))
        return points
