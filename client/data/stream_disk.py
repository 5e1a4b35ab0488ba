"""Stores a stream's samples on disk (ScaDLES, section IV: stream persistence)."""

import json
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from edgeflock.client.data.batcher import Batch
from edgeflock.client.data.records import StreamChunk
from edgeflock.client.data.stream_buffer import KEYS, concatenate, drop_repeated, octets, slice_chunk
from edgeflock.shared.errors import ConfigError

log = logging.getLogger(__name__)

_ROW_BYTES = 1 << 17
"""Samples go into rows of about this size: small enough to be dropped or read in part without much waste."""

_ROW_COST = 64
"""Bytes that a row takes in addition to its samples."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS kinds (
    id INTEGER PRIMARY KEY, shape TEXT NOT NULL, target_shape TEXT NOT NULL, target TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS samples (
    id INTEGER PRIMARY KEY AUTOINCREMENT, arrived REAL NOT NULL, kind INTEGER NOT NULL,
    count INTEGER NOT NULL, used INTEGER NOT NULL DEFAULT 0, octets INTEGER NOT NULL,
    x BLOB NOT NULL, y BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS keys (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE);
"""


Kind = tuple[str, str, str]
"""Shapes of x and y, as JSON, and the type of y."""


class Persistence:
    """Keeps all samples in a SQLite file, up to `quota_bytes`.

    Added samples and their keys survive a crash of the process at any moment. SQLite's journal (WAL,
    synchronous = NORMAL) is synced from time to time, so a power failure loses only the last moments. Samples
    that were taken and not settled return after a restart. The quota does not include the last KEYS keys, the
    file's free pages and a few MiB of journal.

    If the disk is full before the quota, new samples are dropped and counted, with one warning. Samples
    settled meanwhile are deleted when there is room again. A restart before that repeats them.

    Pass the time of day as time, since arrival times must stay valid after a restart.
    """

    is_durable = True

    def __init__(self, path: Path, quota_bytes: int) -> None:
        """Raises ConfigError if the file cannot be a buffer."""
        self._path = path
        self._quota = quota_bytes
        self.drops = self.unwritten = 0
        self.duplicates = 0
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "journal_size_limit = 4194304"):
                self._db.execute(f"PRAGMA {pragma}")
            self._db.executescript(_SCHEMA)
            kinds = self._db.execute("SELECT * FROM kinds ORDER BY id")
            self._kinds: dict[Kind, int] = {
                (shape, target_shape, target): number for number, shape, target_shape, target in kinds
            }
            self._older_kinds = self._waiting_kinds()
            self._octets = self._sum("octets")
            self._count = self._sum("count - used")
        except sqlite3.Error as error:
            raise ConfigError(f"{path} cannot hold a stream: {error}; delete it or name another") from error
        self._next, self._skip = 0, 0
        """Samples before the `_skip`-th of row `_next` were taken. Row 0 is before all."""
        self._is_full = False

    def __len__(self) -> int:
        return self._count

    def add(self, chunk: StreamChunk, now: float) -> None:
        """Raises ConfigError if the disk fails but is not full."""
        if len(chunk) == 0:
            return
        before = self._octets, self._count, self.drops, dict(self._kinds)
        with self._transaction():
            chunk, repeated = drop_repeated(chunk, self._is_new)
            self.duplicates += repeated
            if not len(chunk):
                return
            kind = self._number(chunk)
            rows = max(1, _ROW_BYTES // max(1, octets(chunk) // len(chunk)))
            for first in range(0, len(chunk), rows):
                self._insert(slice_chunk(chunk, first, first + rows), kind, now)
        if self._is_full:
            self._octets, self._count, self.drops, self._kinds = before
            self.drops += len(chunk)
            self.unwritten += len(chunk)

    def _insert(self, piece: StreamChunk, kind: int, now: float) -> None:
        size = octets(piece) + _ROW_COST
        self._make_room(size)
        x, y = piece.x.astype("<f4").tobytes(), piece.y.astype(piece.y.dtype.newbyteorder("<")).tobytes()
        self._db.execute(
            "INSERT INTO samples (arrived, kind, count, octets, x, y) VALUES (?, ?, ?, ?, ?, ?)",
            (now, kind, len(piece), size, x, y),
        )
        self._octets += size
        self._count += len(piece)

    def take(self, count: int, now: float) -> Batch:
        taken: list[StreamChunk] = []
        rows = self._db.execute(
            "SELECT samples.id, count, used, shape, target_shape, target, x, y "
            "FROM samples JOIN kinds ON kinds.id = kind WHERE samples.id >= ? ORDER BY samples.id",
            (self._next,),
        )
        kinds: set[Kind] = set()
        for row, held, used, shape, target_shape, target, x, y in rows:
            first = self._skip if row == self._next else used
            if first >= held:
                continue
            kinds.add((shape, target_shape, target))
            if len(kinds) > 1:
                break
            last = min(held, first + count)
            taken.append(slice_chunk(_chunk(held, (shape, target_shape, target), x, y), first, last))
            self._next, self._skip = row, last
            count -= last - first
            if count == 0:
                break
        rows.close()
        self._count -= sum(map(len, taken))
        return concatenate(taken)

    def settle(self) -> None:
        octets = self._octets
        with self._transaction():
            self._delete("id < ? OR (id = ? AND count <= ?)", self._next, self._next, self._skip)
            self._db.execute("UPDATE samples SET used = ? WHERE id = ?", (self._skip, self._next))
        if self._is_full:
            self._octets = octets

    def take_back(self) -> None:
        self._next, self._skip = 0, 0
        self._count = self._sum("count - used")

    def age(self, now: float) -> float:
        rows = self._waiting_rows()
        row = next(rows, None)
        rows.close()
        return abs(now - row[0]) if row else 0.0

    def count_within(self, seconds: float) -> int:
        count, first = 0, None
        rows = self._waiting_rows()
        for arrived, waiting in rows:
            first = arrived if first is None else first
            if abs(arrived - first) >= seconds:
                break
            count += waiting
        rows.close()
        return count

    def _waiting_rows(self) -> sqlite3.Cursor:
        """(when it arrived, how many of its samples wait) of each row, the oldest first."""
        return self._db.execute(
            "SELECT arrived, count - CASE id WHEN ?1 THEN ?2 ELSE used END FROM samples "
            "WHERE id > ?1 AND count > used OR (id = ?1 AND count > ?2) ORDER BY id",
            (self._next, self._skip),
        )

    def close(self) -> None:
        self._db.close()

    def _is_new(self, key: str) -> bool:
        """Return whether `key` is new, and store it. Keys are as durable as their samples."""
        added = self._db.execute("INSERT OR IGNORE INTO keys (key) VALUES (?)", (key,))
        if not added.rowcount:
            return False
        assert added.lastrowid is not None, "a row was inserted"
        self._db.execute("DELETE FROM keys WHERE id <= ?", (added.lastrowid - KEYS,))
        return True

    def _number(self, chunk: StreamChunk) -> int:
        """Return the number of the samples' kind. Warn once if the file holds other kinds from before."""
        shapes = (json.dumps(chunk.x.shape[1:]), json.dumps(chunk.y.shape[1:]))
        kind = (*shapes, str(chunk.y.dtype))
        if others := self._older_kinds - {kind}:
            log.warning(
                "%s holds samples of another kind from before, %s, than this stream's, %s: what does not fit "
                "the run is set aside; delete the file if it is of another stream",
                *(self._path, "; ".join(map(", ".join, sorted(others))), ", ".join(kind)),
            )
        self._older_kinds = set()
        if kind not in self._kinds:
            added = self._db.execute("INSERT INTO kinds (shape, target_shape, target) VALUES (?, ?, ?)", kind)
            assert added.lastrowid is not None, "a row was inserted"
            self._kinds[kind] = added.lastrowid
        return self._kinds[kind]

    def _waiting_kinds(self) -> set[Kind]:
        numbers = {number for (number,) in self._db.execute("SELECT DISTINCT kind FROM samples")}
        return {kind for kind, number in self._kinds.items() if number in numbers}

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run a transaction. If the disk is full it is rolled back and sets `_is_full`."""
        was_full, self._is_full = self._is_full, False
        try:
            self._db.execute("BEGIN")
            yield
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                self._is_full = True
                if not was_full:
                    log.warning("%s: the disk is full; samples are dropped until there is room", self._path)
                return
            raise ConfigError(f"{self._path} cannot be written: {error}") from error
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def _make_room(self, size: int) -> None:
        while self._octets and self._octets + size > self._quota:
            row, count, used = self._db.execute(
                "SELECT id, count, used FROM samples ORDER BY id LIMIT 1"
            ).fetchone()
            # Samples taken and not settled do not count as drops, since they may have been used.
            before = count if row < self._next else self._skip if row == self._next else used
            self.drops += count - before
            self._count -= count - before
            self._delete("id = ?", row)

    def _delete(self, condition: str, *values: int) -> None:
        (size,) = self._db.execute(
            f"SELECT coalesce(sum(octets), 0) FROM samples WHERE {condition}", values
        ).fetchone()
        self._db.execute(f"DELETE FROM samples WHERE {condition}", values)
        self._octets -= size

    def _sum(self, expression: str) -> int:
        (total,) = self._db.execute(f"SELECT coalesce(sum({expression}), 0) FROM samples").fetchone()
        return int(total)


def _chunk(count: int, kind: Kind, x: bytes, y: bytes) -> StreamChunk:
    shape, target_shape, target = kind
    targets = np.frombuffer(y, np.dtype(target).newbyteorder("<")).astype(target)
    samples = np.frombuffer(x, "<f4").astype(np.float32)
    return StreamChunk(
        samples.reshape(count, *json.loads(shape)), targets.reshape(count, *json.loads(target_shape))
    )
