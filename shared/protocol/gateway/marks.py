"""Marks: how far a gateway has received the model, as a leader's life and the number of its Changes."""

LIFE = 16
"""The random bytes that identify a leader's life. A mark is these and the number of Changes, in eight
bytes."""


def first_mark(life: bytes) -> bytes:
    """The mark before the first Change of a leader's life."""
    return life + bytes(8)


def advance(mark: bytes, changes: int) -> bytes:
    """The mark after `changes` more Changes."""
    return mark[:LIFE] + (int.from_bytes(mark[LIFE:], "big") + changes).to_bytes(8, "big")


def changes_between(mark: bytes, newer: bytes) -> int | None:
    """The number of Changes from one mark to the other; None if they do not lead there."""
    if len(mark) != len(newer) or mark[:LIFE] != newer[:LIFE]:
        return None
    changes = int.from_bytes(newer[LIFE:], "big") - int.from_bytes(mark[LIFE:], "big")
    return changes if changes >= 0 else None
