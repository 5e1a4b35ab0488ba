"""Copy a run's journal to another place, row by row, and compare the copy with the source."""

import hashlib
from contextlib import ExitStack
from dataclasses import dataclass

import msgpack

from edgeflock.server.ledger.claim import lock
from edgeflock.server.ledger.journal import Journal
from edgeflock.server.ledger.place import file_of, open_journal
from edgeflock.server.ledger.recovery import replay
from edgeflock.server.ledger.stores.migrations import TABLES
from edgeflock.shared.errors import ConfigError, JournalDamaged

_LEASE = 60.0
"""Seconds. No other process waits for this lease."""


@dataclass(frozen=True, slots=True)
class CopyReport:
    """The result of a copy."""

    run: str
    version: int
    rows: int
    theta: str
    """SHA-256 of the model, replayed from the newest snapshot of the copy."""


def copy(source: str, target: str) -> CopyReport:
    """Copy a run to a place that holds none. Compare all rows, and the models that both journals replay to.

    Raises ConfigError if a server hosts one of them, the source has no run, or the target has one. Raises
    JournalDamaged if the copy differs; it must not be used then.
    """
    with ExitStack() as opened:
        for folder in {path.resolve().parent for path in map(file_of, (source, target)) if path is not None}:
            if not folder.is_dir():
                raise ConfigError(f"{folder}: there is no such folder")
            opened.enter_context(lock(folder, "the folder of a journal"))
        path = file_of(source)
        if path is not None and not path.is_file():
            raise ConfigError(f"{path}: there is no such file")
        old = open_journal(source, _LEASE)
        opened.callback(old.abandon)
        begun = old.run()
        if begun is None:
            raise ConfigError(f"{old.path} holds no run")
        new = open_journal(target, _LEASE)
        opened.callback(new.abandon)
        if (present := new.run()) is not None:
            raise ConfigError(f"{new.path} holds a run already, {present.run}; name another place")
        new.copy_from(old)
        rows, digest = _digest(old)
        if _digest(new) != (rows, digest):
            raise JournalDamaged(
                f"{new.path} differs from {old.path}, of which it is a copy: delete it and copy again"
            )
        theta, copied = _model_digest(old), _model_digest(new)
        if theta != copied:
            raise JournalDamaged(f"{new.path} replays to the model {copied}, {old.path} to {theta}")
        return CopyReport(begun.run, new.version, rows, theta)


def _digest(journal: Journal) -> tuple[int, str]:
    """(rows, SHA-256 of them all)."""
    count, total = 0, hashlib.sha256()
    for table in TABLES:
        for row in journal.table(table):
            total.update(msgpack.packb(row))
            count += 1
    return count, total.hexdigest()


def _model_digest(journal: Journal) -> str:
    run = journal.run()
    assert run is not None, "it was looked at before"
    model = replay(journal, run.layout, newest=True) if journal.regimes() else journal.snapshot()
    return hashlib.sha256(model.theta.astype("<f4").tobytes()).hexdigest()
