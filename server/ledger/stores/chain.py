"""Checksums, each over what it covers and the one before it: what changed, is missing or moved does not fit.

CRC-32 finds damage, and costs a push a few microseconds. It keeps nobody out: who may write the file can
write its sums, too.
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
_UNLIKE = -1
"""No checksum is negative."""

COVERED = {
    "meta": "run, model, layout, created, start, data",
    "devices": "id, name",
    "updates": "version, device, sequence, time, loss, samples, share, judged, sum",
    "regimes": "version, rule, learning_rate, window, average, base_batch, rounds, kind, how",
    "adjustments": "version, configured, chosen",
    "evaluations": "version, time, loss, accuracy, ingress, egress, metrics",
    "repairs": "version, given_up, run, time",
}
"""The tables that only grow -> the columns that their chain covers. All chains begin with that of meta. The
traffic of a device is in none: it changes, and decides nothing."""

_KEYS = {"devices": "id", "updates": "version", "snapshots": "version"}


def key_of(table: str) -> str:
    """The column of the numbers of its rows, from 1 on. SQLite has a `rowid` in every table unasked."""
    return _KEYS.get(table, "rowid")


def kept(value: object) -> object:
    """A value as every database keeps it: SQLite knows no NaN, no sign of a zero, and true as 1."""
    if isinstance(value, float):
        return None if value != value else value + 0.0
    return int(value) if isinstance(value, bool) else value


Facts = tuple[int, int, int, float, float | None, int, float, bytes | None, int]
"""Of an update: version, device, sequence, time, loss (None: no number), samples, share, why (None: there is
no defence), `of_frame`."""

of_frame = crc32
"""Of an Update record, apart from the chain, so that it can be dropped and the chain still holds."""


def of_update(before: int, facts: Facts) -> int:
    """The chain at the version that an update made, from that of the version `before`. The share and why
    it is so came later, and are left out where the update counts in full, or nothing is said.
    """
    version, device, sequence, time, loss, samples, share, judged, frame = facts
    try:
        # SQLite keeps neither NaN nor the sign of a zero.
        known = _NO_LOSS if loss is None or loss != loss else loss + 0.0
        total = crc32(_FACTS.pack(version, device, sequence, time + 0.0, known, samples, frame), before)
        total = total if share == 1 else crc32(_SHARE.pack(share), total)
        return total if judged is None else crc32(judged, total)
    except (struct.error, TypeError):  # damage may have made anything of a column
        return _UNLIKE


def of_row(before: int, row: Iterable[object]) -> int:
    """The chain of a table after a row, as the database gives it back. An empty text at its end is left out:
    the last columns of meta, regimes and evaluations came later, and are empty where they say nothing.
    """
    try:
        values = list(row)
        if values[-1] == "":
            values.pop()
        return crc32(msgpack.packb(values), before)
    except TypeError:
        return _UNLIKE


def of_vectors(
    version: int, chain: int, theta: bytes, average: bytes | None, memory: bytes | None = None
) -> int:
    """Of a snapshot: all its bytes, what it is of, and how long it is."""
    head = _VECTORS.pack(version, chain, len(theta), -1 if average is None else len(average))
    total = crc32(average or b"", crc32(theta, crc32(head)))
    return total if memory is None else crc32(memory, crc32(struct.pack("<q", len(memory)), total))


def walk(
    rows: Iterable[tuple[object, ...]], before: int, turns: Mapping[int, int], after: int, path: object
) -> Iterator[tuple[Facts, bytes | None, int]]:
    """(facts, record, chain) of the updates that follow version `after`, whose chain is `before`.

    `rows` are these columns: facts, chain, frame.
    `turns` are the versions at which regimes began -> the chain behind them. Raises JournalDamaged at the
    first that is missing or not as it was written.
    """
    expected, chain = after + 1, before
    for *columns, kept, frame in rows:
        facts: Facts = tuple(columns)  # type: ignore[assignment]  # of_update meets whatever it is
        if facts[0] != expected:
            raise missing(path, expected)
        if frame is not None and not (isinstance(frame, bytes) and of_frame(frame) == facts[-1]):
            raise _changed(path, expected, "the record of the update that made")
        chain = of_update(turns.get(expected - 1, chain), facts)
        if chain != kept:
            raise _changed(path, expected, "the update that made")
        yield facts, frame, chain
        expected += 1


def missing(path: object, version: int) -> JournalDamaged:
    return JournalDamaged(f"{path}: the update that made version {version} is missing")


def _changed(path: object, version: int, what: str) -> JournalDamaged:
    return JournalDamaged(f"{path}: {what} version {version} is not as it was written")
