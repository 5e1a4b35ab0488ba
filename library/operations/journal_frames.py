"""A server's journal as the frames of a feed, as if the run had been watched from the start.

The frames lack what a journal does not keep: telemetry, egress of a device, and connection times. A device
counts as training while its updates arrive, and as away 60 seconds after the last one.
"""

import sqlite3
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import msgpack

from edgeflock.server.database import SqliteDatabase, map_sqlite_errors
from edgeflock.server.evaluation.evaluator import has_diverged
from edgeflock.server.journal.records import evaluation_from_row
from edgeflock.server.journal.stores.chain import COVERED
from edgeflock.server.journal.stores.schema import schema_of
from edgeflock.shared.errors import ConfigError, JournalDamaged
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.frames import (
    BINS,
    Delta,
    DeviceRow,
    Evaluation,
    Event,
    Frame,
    Overview,
    RunFacts,
    RunState,
    Snapshot,
    finite_or_none,
    staleness_bin,
)

MAX_FRAMES = 2000
AWAY_SECONDS = 60.0
"""Seconds without an update after which a device is no longer counted as connected."""
_RATE_SECONDS = 10.0
_SMOOTHING = 0.05
"""The weight of an update's loss in the average."""
_FRAMING = 8
"""Bytes of an update's WebSocket frame: header and mask (RFC 6455, section 5.2)."""


def _first_row(number: int, name: str) -> DeviceRow:
    counts = dict.fromkeys(("updates", "refused", "ingress", "egress", "samples", "compressed"), 0)
    known = {"id": number, "name": name, "state": "training", **counts}
    return DeviceRow(**{**dict.fromkeys(DeviceRow._fields), **known})  # type: ignore[arg-type]


@dataclass(slots=True)
class _Totals:
    """Totals of the run so far."""

    size: int
    start: float
    """Unix time of the first update."""
    version: int = 0
    ingress: int = 0
    egress: int = 0
    compressed: int = 0
    loss: float | None = None
    bins: list[int] = field(default_factory=lambda: [0] * BINS)
    recent: deque[tuple[float, int, int]] = field(default_factory=deque)
    """(time, updates, ingress) of the frames of the last ten seconds."""

    def overview(self, now: float, devices: dict[int, DeviceRow], state: RunState) -> Overview:
        self.recent.append((now, self.version, self.ingress))
        while len(self.recent) > 2 and self.recent[1][0] <= now - _RATE_SECONDS:
            self.recent.popleft()
        start, version, ingress = self.recent[0]
        seconds = max(now - start, 1e-9)
        known = len(self.recent) > 1
        dense = 4 * self.size * self.version
        return Overview(
            version=self.version,
            updates_per_s=(self.version - version) / seconds if known else 0.0,
            ingress=self.ingress,
            egress=self.egress,
            ingress_rate=(self.ingress - ingress) / seconds if known else 0.0,
            egress_rate=0.0,
            dense_bytes=dense,
            reduction=round(dense / self.ingress, 1) if self.ingress else None,
            staleness=list(self.bins),
            devices=len(devices),
            up=sum(device.state != "away" for device in devices.values()),
            cnc=self.compressed / self.version if self.version else None,
            loss=self.loss,
            evaluation_failed=False,
            state=state,
            shared_samples=0,
            tasks=None,
            began=self.start,
        )


def journal_frames(path: Path, limit: int = MAX_FRAMES) -> Iterator[Frame]:
    """Yield at most about `limit` frames, at least a second apart.

    The journal is only read. Its server may be running. Raises ConfigError if `path` cannot be read, is of an
    earlier schema or holds no update, JournalDamaged if it is no journal, JournalTooNew.
    """
    try:
        with closing(SqliteDatabase(path, read_only=True)) as db, map_sqlite_errors(path):
            if not schema_of(db):
                raise ConfigError(f"{path} holds no run yet")
            yield from _frames(db.connection, path, limit)
    except sqlite3.Error as error:
        raise ConfigError(f"{path} cannot be read as a run's journal: {error}") from error


def _frames(db: sqlite3.Connection, path: Path, limit: int) -> Iterator[Frame]:
    identity, model, packed = db.execute("SELECT run, model, layout FROM meta").fetchone()
    layout = Layout.from_shapes(msgpack.unpackb(packed))
    first, last, total = db.execute("SELECT min(time), max(time), max(version) FROM updates").fetchone()
    if total is None:
        raise ConfigError(f"{path} holds no update yet")
    evaluated_rows = db.execute(f"SELECT {COVERED['evaluations']} FROM evaluations ORDER BY rowid")
    evaluations = deque(
        one._replace(loss=finite_or_none(one.loss), accuracy=finite_or_none(one.accuracy))
        for one in map(evaluation_from_row, evaluated_rows)
    )
    began = min([first, *(evaluation.time for evaluation in evaluations)])
    every = max(1.0, (max(last, *(e.time for e in evaluations), began) - began) / limit)
    names = dict(db.execute("SELECT id, name FROM devices"))
    regimes = _regimes(db)
    devices: dict[int, DeviceRow] = {}
    tally = _Totals(layout.size, first)
    whole = layout.parameters.size
    config = {"regimes": {f"from version {version}": text for version, text in regimes.items()}}
    run = RunFacts(identity, model, layout.parameters.size, layout.size, 0, config)
    yield Snapshot(began, run, "viewer", (), tally.overview(began, devices, "training"), (), ())

    now = began
    changed: dict[int, None] = {}
    events: list[Event] = []
    seen: list[Evaluation] = []

    def frame(has_ended: bool = False) -> Delta:
        for device in devices.values():
            if device.state != "away" and now - (device.last_seen or 0.0) > AWAY_SECONDS:
                devices[device.id], changed[device.id] = device._replace(state="away"), None
                events.append(Event(now, "left", device.name, f"no update for {AWAY_SECONDS:.0f} s"))
        evaluated: list[Evaluation] = []
        while evaluations and (has_ended or evaluations[0].time <= now):
            evaluated.append(evaluations.popleft())
            tally.ingress = max(tally.ingress, evaluated[-1].ingress)
            tally.egress = evaluated[-1].egress
        seen.extend(evaluated)
        state: RunState = "diverged" if has_diverged(seen) else "finished" if has_ended else "training"
        made = Delta(
            now,
            tally.overview(now, devices, state),
            tuple(devices[number] for number in changed),
            tuple(evaluated),
            tuple(events),
            0,
        )
        changed.clear()
        events.clear()
        return made

    rows = db.execute(
        "SELECT version, device, time, loss, samples, substr(frame, 1, 64), length(frame) "
        "FROM updates WHERE device > 0 ORDER BY version"  # device 0 is the server, for a rollback
    )
    for version, number, time, loss, samples, head, length in rows:
        while time > now + every:
            now += every
            yield frame()
        device = devices.get(number)
        if device is None:
            device = _first_row(number, names[number])
            events.append(Event(time, "joined", device.name, "its first update"))
        elif device.state == "away":
            device = device._replace(state="training")
            events.append(Event(time, "joined", device.name, "updates again"))
        if version - 1 in regimes and version > 1:
            events.append(Event(time, "config", None, regimes[version - 1]))
        try:
            loss, length = finite_or_none(loss), length or 0
            devices[number] = _count(tally, device, version, time, loss, samples, head, whole, length)
        except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
            raise JournalDamaged(f"{path}: the entry of version {version} is no update: {error}") from error
        changed[number] = None
    now = max(last, *(e.time for e in evaluations), now) if evaluations else max(last, now)
    yield frame(has_ended=True)


def _count(
    tally: _Totals,
    device: DeviceRow,
    version: int,
    time: float,
    loss: float | None,
    samples: int,
    head: bytes | None,
    whole: int,
    length: int,
) -> DeviceRow:
    """Count an update, and return the row of its device after it."""
    tally.version = version
    octets = length + _FRAMING if length else 0
    tally.ingress += octets
    if loss is not None:
        tally.loss = loss if tally.loss is None else tally.loss + _SMOOTHING * (loss - tally.loss)
    staleness, selected = device.staleness, False
    if head:
        base, count = _base(head)
        staleness, selected = max(0, version - 1 - base), count != whole
        tally.bins[staleness_bin(staleness)] += 1
        tally.compressed += selected
    return device._replace(
        updates=device.updates + 1,
        samples=device.samples + samples,
        compressed=device.compressed + selected,
        ingress=device.ingress + octets,
        loss=device.loss if loss is None else loss,
        staleness=staleness,
        batch=samples,
        last_seen=time,
    )


def _base(head: bytes) -> tuple[int, int]:
    """Return (base, count) of an Update, from the first bytes of [tag, sequence, base, count, ...]."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(head)
    unpacker.read_array_header()
    _, _, base, count = (unpacker.unpack() for _ in range(4))
    return int(base), int(count)


def _regimes(db: sqlite3.Connection) -> dict[int, str]:
    """Return version -> the change in how updates count."""
    cursor = db.execute(f"SELECT {COVERED['regimes'].replace('kind, ', '')} FROM regimes ORDER BY rowid")
    columns = [column[0] for column in cursor.description]
    rows = [dict(zip(columns, row, strict=True)) for row in cursor]
    changes = (
        {rows[0]["version"]: ", ".join(f"{k} {v}" for k, v in rows[0].items() if k != "version")}
        if rows
        else {}
    )
    for before, after in pairwise(rows):
        changes[after["version"]] = ", ".join(
            f"{key.replace('_', ' ')} {before[key]} -> {value}"
            for key, value in after.items()
            if key != "version" and value != before[key]
        )
    return changes
