"""Update records as journals of schema 6 and older hold them, brought into the order of schema 7."""

import sqlite3
from typing import Any

import msgpack

from edgeflock.shared.protocol.levels import level


def reorder(db: sqlite3.Connection) -> None:
    """Rewrite the frames of all updates that have theirs."""
    db.create_function("reordered", 1, _reordered, deterministic=True)
    db.execute("UPDATE updates SET frame = reordered(frame) WHERE length(frame) > 0")


def _reordered(frame: bytes) -> bytes:
    """What is no update stays as it is: whoever replays it says so, and which it is."""
    try:
        fields: list[Any] = msgpack.unpackb(frame)
        fields += (None, 0)[len(fields) - 11 :]  # facts and held, if they were left out
        head, modes = fields[:3], fields[3:5]
        count, indices, octets, loss, samples, pull, facts, held = fields[5:]
        if modes[0] == 3 and not count:  # a grid of nothing had a byte then
            indices = b""
        rest = [count, indices, octets, level(loss), samples, held, *modes, facts, pull]
        return bytes(msgpack.packb([*head, *rest]))
    except (ValueError, TypeError, msgpack.exceptions.UnpackException):
        return frame
