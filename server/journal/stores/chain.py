"""Chained checksums: each covers its row and the checksum before it. A change, gap or move breaks the chain.

CRC-32 finds damage, and costs a push a few microseconds. It is no protection: a process that can write the
file can also write its checksums.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from zlib import crc32

import msgpack

from edgeflock.shared.errors import JournalDamaged

_FACTS = struct.Struct("<qqqddqI")
_SHARE = struct.Struct("<d")
_NO_LOSS = float("nan")
_VECTORS = struct.Struct("<qIqq")
_INVALID = -1
"""A value that no checksum has."""

COVERED = {
    "meta": "run, model, layout, created, start, data",
    "devices": "id, name",
    "updates": "version, device, sequence, time, loss, samples, share, judged, sum",
    "regimes": 'version, rule, learning_rate, "window", average, base_batch, rounds, kind, how',
    "adjustments": "version, configured, chosen",
    "evaluations": "version, time, loss, accuracy, ingress, egress, metrics",
    "repairs": "version, given_up, run, time",
}
"""The tables that only grow -> the columns that their chain covers. All chains begin with that of meta.
A device's traffic is in no chain: it changes, and nothing depends on it."""

_KEYS = {"devices": "id", "updates": "version", "snapshots": "version"}


def key_of(table: str) -> str:
    """The column of the row numbers, from 1 on. SQLite has a `rowid` in every table without one."""
    return _KEYS.get(table, "rowid")


Facts = tuple[int, int, int, float, float | None, int, float, bytes | None, int]
"""An update's facts: version, device, sequence, time, loss (None: no number), samples, share, reason (None:
no defence), `frame_sum`."""

frame_sum = crc32
"""The checksum of an Update record. It is apart from the chain, which holds if the record is dropped."""


def update_sum(previous: int, facts: Facts) -> int:
    """The chain at the version that an update made, from the chain `previous` it.

    A share of 1 and a missing reason are left out.
    """
    version, device, sequence, time, loss, samples, share, judged, frame = facts
    try:
        # SQLite stores neither NaN nor the sign of a zero.
        number = _NO_LOSS if loss is None or loss != loss else loss + 0.0
        total = crc32(_FACTS.pack(version, device, sequence, time + 0.0, number, samples, frame), previous)
        total = total if share == 1 else crc32(_SHARE.pack(share), total)
        return total if judged is None else crc32(judged, total)
    except (struct.error, TypeError):  # damage may have made anything of a column
        return _INVALID


def row_sum(previous: int, row: Iterable[object]) -> int:
    """The chain of a table after a row, as the database returns it.

    An empty text at its end is left out.
    """
    try:
        values = list(row)
        if values[-1] == "":
            values.pop()
        return crc32(msgpack.packb(values), previous)
    except TypeError:
        return _INVALID


def vector_sum(
    version: int, chain: int, theta: bytes, average: bytes | None, memory: bytes | None = None
) -> int:
    """The checksum of a snapshot: its version, chain and lengths, and all its bytes."""
    head = _VECTORS.pack(version, chain, len(theta), -1 if average is None else len(average))
    total = crc32(average or b"", crc32(theta, crc32(head)))
    return total if memory is None else crc32(memory, crc32(struct.pack("<q", len(memory)), total))


def walk(
    rows: Iterable[tuple[object, ...]], previous: int, chains: Mapping[int, int], after: int, path: object
) -> Iterator[tuple[Facts, bytes | None]]:
    """Yield (facts, record) of the updates after version `after`, whose chain is `previous`.

    `rows` have the columns facts, chain, frame.
    `chains` maps each version at which a regime began to the chain after it. Raises JournalDamaged at the
    first update that is missing or whose checksum does not match.
    """
    expected, chain = after + 1, previous
    for *columns, stored, frame in rows:
        facts: Facts = tuple(columns)  # type: ignore[assignment]  # of_update checks the types
        if facts[0] != expected:
            raise missing_update(path, expected)
        if frame is not None and not (isinstance(frame, bytes) and frame_sum(frame) == facts[-1]):
            raise _changed_row(path, expected, "the record of the update that made")
        chain = update_sum(chains.get(expected - 1, chain), facts)
        if chain != stored:
            raise _changed_row(path, expected, "the update that made")
        yield facts, frame
        expected += 1


def missing_update(path: object, version: int) -> JournalDamaged:
    return JournalDamaged(f"{path}: the update that made version {version} is missing")


def _changed_row(path: object, version: int, name: str) -> JournalDamaged:
    return JournalDamaged(f"{path}: {name} version {version} has a wrong checksum")
