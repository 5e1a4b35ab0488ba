"""Up to where somebody was told of the model: a leader's life, and how many Changes there were in it."""

LIFE = 16
"""Bytes that a leader draws anew for each of its lives. A mark is these and the number of Changes, in eight
bytes."""


def first_mark(life: bytes) -> bytes:
    """Before the first Change of a leader's life."""
    return life + bytes(8)


def further(mark: bytes, changes: int) -> bytes:
    """The mark behind so many more Changes."""
    return mark[:LIFE] + (int.from_bytes(mark[LIFE:], "big") + changes).to_bytes(8, "big")


def between(mark: bytes, later: bytes) -> int | None:
    """How many Changes lead from one mark to another; None: they do not."""
    if len(mark) != len(later) or mark[:LIFE] != later[:LIFE]:
        return None
    changes = int.from_bytes(later[LIFE:], "big") - int.from_bytes(mark[LIFE:], "big")
    return changes if changes >= 0 else None
