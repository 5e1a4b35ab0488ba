"""Convert the Update records in journals of schema 6 and older to the field order of schema 7."""

import sqlite3
from typing import Any

import msgpack

from edgeflock.shared.protocol.wire import level


def reorder(db: sqlite3.Connection) -> None:
    """Rewrite all frames that the updates still have."""
    db.create_function("reordered", 1, _reorder_frame, deterministic=True)
    db.execute("UPDATE updates SET frame = reordered(frame) WHERE length(frame) > 0")


def _reorder_frame(frame: bytes) -> bytes:
    """A frame in the new order. An invalid frame stays as it is, since the replay reports it."""
    try:
        fields: list[Any] = msgpack.unpackb(frame)
        fields += (None, 0)[len(fields) - 11 :]  # facts and held, if they are absent
        head, modes = fields[:3], fields[3:5]
        count, indices, octets, loss, samples, pull, facts, held = fields[5:]
        if modes[0] == 3 and not count:  # an empty grid had a byte in that schema
            indices = b""
        rest = [count, indices, octets, level(loss), samples, held, *modes, facts, pull]
        return bytes(msgpack.packb([*head, *rest]))
    except (ValueError, TypeError, msgpack.exceptions.UnpackException):
        return frame
