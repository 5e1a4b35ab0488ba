"""The history of one device, from the server's history and the feed. All functions are pure."""

from collections.abc import Iterable, Sequence

from edgeflock.shared.protocol.frames import DeviceRow, Point

MAX_POINTS = 2000


def extend(points: Sequence[Point], row: DeviceRow, now: float) -> tuple[Point, ...]:
    """Return `points` with the device's values at `now`, if it made an update since the last point."""
    last = points[-1] if points else None
    if row.updates == 0 or (last is not None and row.ingress <= last.bytes):
        return tuple(points)
    time = min(now, row.last_seen) if row.last_seen is not None else now
    if last is not None and time <= last.time:
        time = now
    return (*points, Point(time, row.loss, row.staleness, row.ingress))[-MAX_POINTS:]


def collect_points(states: Iterable[tuple[float, DeviceRow]]) -> tuple[Point, ...]:
    """Return the history of a series of (time, row)."""
    points: tuple[Point, ...] = ()
    for now, row in states:
        points = extend(points, row, now)
    return points
