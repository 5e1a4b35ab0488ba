"""A small model, updates for it, and an engine watched by the slow reference server."""

import shutil
import sqlite3
import struct
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.coordination.asynchronous import Asynchronous
from edgeflock.server.coordination.coordinator import Push
from edgeflock.server.coordination.rounds import RoundEnd, Rounds
from edgeflock.server.database import SqliteDatabase
from edgeflock.server.descent.parameters import Parameters
from edgeflock.server.descent.regime import Regime
from edgeflock.server.engine.engine import Engine
from edgeflock.server.engine.limits import EngineLimits
from edgeflock.server.engine.outcomes import Answer
from edgeflock.server.journal.journal import Journal
from edgeflock.server.journal.stores.examination import examine, seal
from edgeflock.server.journal.stores.mark import ProgressFile
from edgeflock.server.ledger.recovery import recover
from edgeflock.server.publication import Publication
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.errors import Refused
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Receipt, Update
from tests.server.descent.reference import SlowServer

_SHAPES: list[tuple[str, tuple[int, ...]]] = [("kernel", (4, 5)), ("bias", (4,)), ("scale", ())]
LAYOUT = Layout.from_shapes(_SHAPES)
THETA: NDArray[np.float32] = np.random.default_rng(0).standard_normal(LAYOUT.size).astype(np.float32)
REGIME = Regime("adacomp", 0.1, 6)
NORMED = Layout.from_shapes([*_SHAPES, ("mean", (3,), True), ("variance", (3,), True)])
"""The same model with a layer that keeps running statistics."""
F32 = values.CODINGS["f32"].mode


def sparse_update(
    sequence: int, base: int, entries: Mapping[int, float], *, coding: str = "f32", pull: bool = False
) -> Update:
    """The update that changes parameter k by entries[k], as exactly as `coding` can."""
    where = np.array(sorted(entries), np.int64)
    delta = np.array([entries[k] for k in where.tolist()], np.float32)
    return Update(
        sequence=sequence,
        base=base,
        index_mode=sparse.GOLOMB,
        value_mode=values.CODINGS[coding].mode,
        count=where.size,
        indices=sparse.encode(where, LAYOUT.size),
        values=values.encode(delta, LAYOUT.counts(where), coding),
        loss=0.5,
        samples=10,
        pull=pull,
    )


def dense_update(sequence: int, base: int, delta: NDArray[np.float32]) -> Update:
    """The update that changes every parameter."""
    return Update(sequence, base, sparse.DENSE, F32, delta.size, b"", delta.tobytes(), 0.5, 10, False)


def with_statistics(update: Update, statistics: Sequence[float]) -> Update:
    """The same update of a model with running statistics, which its batch came to."""
    return replace(update, values=update.values + struct.pack(f"<{len(statistics)}e", *statistics))


def initial(layout: Layout) -> NDArray[np.float32]:
    """THETA, with all running statistics 1."""
    return np.concatenate((THETA, np.ones(layout.buffers, np.float32)))


def push(device: int, update: Update) -> Push:
    return Push(device, 1_700_000_000.0, update, wire.encode(update))


DEADLINE = 30.0
"""The rounds of `open_engine` end so many seconds after they began, and only then."""


def commit(engine: Engine, pushes: Sequence[Push]) -> list[Receipt | Refused | None]:
    """What comes of each at second 0; None if it is held."""
    settled = dict(engine.commit(pushes, 0.0))
    return [receipt(settled[one]) if one in settled else None for one in pushes]


def receipt(answer: Answer) -> Receipt | Refused:
    return answer if isinstance(answer, Refused) else answer.receipt


def end_round(engine: Engine) -> list[tuple[Push, Receipt]]:
    """What the round comes to that is open since second 0."""
    ended = []
    for one, answer in engine.commit([], DEADLINE):
        assert not isinstance(answer, Refused)
        ended.append((one, answer.receipt))
    return ended


def open_engine(
    directory: Path,
    regime: Regime = REGIME,
    bounds: EngineLimits | None = None,
    publication: Publication | None = None,
    layout: Layout = LAYOUT,
) -> tuple[Journal, Engine]:
    """Begin the run in `directory`, or take it up."""
    journal = Journal(directory / "journal.sqlite")
    if journal.run() is None:
        journal.begin_run("run", "package:Model", layout, initial(layout), 1_700_000_000.0)
    rounds = Rounds(RoundEnd(quorum=1 << 30, deadline=DEADLINE), layout)
    parameters = recover(journal, layout, regime)
    return journal, Engine(
        journal, layout, parameters, rounds if regime.rounds else Asynchronous(), bounds, publication
    )


def recovered(directory: Path, regime: Regime, layout: Layout = LAYOUT) -> Parameters:
    """What a start in `directory` finds."""
    journal = Journal(directory / "journal.sqlite")
    parameters = recover(journal, layout, regime)
    journal.close()
    return parameters


def tampered(path: Path, statement: str, *values: object, sealed: bool = False) -> None:
    """Change a closed journal; with `sealed` its checksums and its mark fit again, as a mistake's would."""
    with closing(SqliteDatabase(path)) as db:
        db.write(statement, *values)
        if sealed:
            seal(db.connection)
            heads = examine(db).heads
        db.commit()
    if sealed:
        mark = ProgressFile(path, durable=False)
        mark.note(heads)
        mark.close()


def copy_as_killed(directory: Path, to: Path) -> Path:
    """What `kill -9` leaves: the journal and its write-ahead log as they lie on the disk at this moment."""
    to.mkdir()
    for file in directory.glob("journal.sqlite*"):
        if not file.name.endswith("-shm"):  # shared memory does not outlive its processes
            shutil.copy(file, to)
    return to


class Watched:
    """An engine under random updates of three devices, and the reference that takes the same ones."""

    def __init__(
        self,
        directory: Path,
        regime: Regime = REGIME,
        bounds: EngineLimits | None = None,
        seed: int = 0,
        layout: Layout = LAYOUT,
    ) -> None:
        self.directory = directory
        self.bounds = bounds
        self.layout = layout
        self.slow = SlowServer(initial(layout), regime, layout.buffers)
        self.random = np.random.default_rng(seed)
        self.sequences: dict[int, int] = {}
        self.pushes: list[Push] = []
        self.journal, self.engine = open_engine(directory, regime, bounds, layout=layout)
        self.devices = [self.engine.device_id(f"device {i}") for i in range(3)]

    def prepare(self, count: int) -> list[Push]:
        """The next `count` updates, already taken by the reference."""
        group = []
        for _ in range(count):
            device = int(self.random.choice(self.devices))
            self.sequences[device] = self.sequences.get(device, 0) + int(self.random.integers(1, 4))
            base = int(self.random.choice(self.slow.bases))
            delta = self.random.integers(-8, 9, LAYOUT.size).astype(np.float32) / np.float32(7)
            kind = self.random.random()
            if kind < 0.2:
                where = np.arange(LAYOUT.size)
                update = dense_update(self.sequences[device], base, delta)
            else:
                where = np.flatnonzero(self.random.random(LAYOUT.size) < 0.2)
                coding = "f32"
                if kind < 0.6:  # which signs alone say exactly
                    coding, delta = "sign", np.where(delta < 0, np.float32(-0.5), np.float32(0.5))
                entries = {int(k): float(delta[k]) for k in where}
                update = sparse_update(self.sequences[device], base, entries, coding=coding)
            seen = self.random.standard_normal(self.layout.buffers).astype(np.float16).astype(np.float32)
            update = with_statistics(update, seen.tolist())
            self.slow.apply(base, where.tolist(), list(delta[where]), list(seen))
            group.append(push(device, update))
        self.pushes += group
        return group

    def commit(self, count: int = 1) -> list[Receipt | Refused | None]:
        """Push the next `count` updates as one group, all of which must be accepted."""
        before, group = self.engine.published.version, self.prepare(count)
        answers = commit(self.engine, group)
        assert answers == [Receipt(one.update.sequence, before + 1 + i, None) for i, one in enumerate(group)]
        return answers

    def check(self) -> None:
        self.slow.assert_equals(self.engine.parameters)

    def reopen(self, regime: Regime | None = None, *, killed: bool = False) -> None:
        """Stop and start again, perhaps with other settings."""
        self.slow.regime = regime or self.slow.regime
        if killed:
            self.directory = copy_as_killed(self.directory, self.directory / "killed")
            self.journal.close()
        else:
            self.engine.close()
        self.journal, self.engine = open_engine(
            self.directory, self.slow.regime, self.bounds, layout=self.layout
        )


def with_pull(one: Push) -> Push:
    """The same update, asking for the next model."""
    return push(one.device, replace(one.update, pull=True))


def kinds(answers: Sequence[object]) -> list[type]:
    return [type(answer) for answer in answers]


def journal_rows(directory: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(directory / "journal.sqlite")) as db:
        facts = "version, device, sequence, time, loss, samples, frame"
        return db.execute(f"SELECT {facts} FROM updates ORDER BY version").fetchall()
