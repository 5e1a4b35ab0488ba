"""Recover the parameters from the journal, bit for bit.

A journal holds what was admitted, in order. What cannot be replayed is damage, and is never skipped:
JournalDamaged names the version.
"""

import logging
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from edgeflock.server.descent import (
    RULES,
    Gathered,
    OptimizerMemory,
    Parameters,
    Part,
    Place,
    Regime,
    Step,
    Vectors,
    VectorsLost,
)
from edgeflock.server.engine.admission import admit
from edgeflock.server.journal.contents import Contents
from edgeflock.server.journal.journal import Journal
from edgeflock.server.journal.records import JournaledUpdate, ModelSnapshot, RegimeStart
from edgeflock.shared.errors import ConfigError, JournalDamaged, Refused, UnexpectedRecord
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Update

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplayedJournal:
    """The state of a run that was replayed while another server led it."""

    run: str
    regimes: int
    """The number of regimes. A new regime restarts the replay from the regime's own snapshot."""
    parameters: Parameters


def restore(journal: Journal, layout: Layout, place: Place, version: int, lost: VectorsLost) -> Vectors:
    """The parameters' vectors at a version, restored from the newest snapshot and the updates after it.

    The journal is committed first. Raises VectorsLost if `place` loses them again.
    """
    log.warning("%s; version %d is made again from the journal", lost, version)
    journal.commit()
    vectors = _rebuild(journal, layout, version, newest=True, place=place).store.vectors
    vectors.flush()
    return vectors


def recover(
    journal: Journal,
    layout: Layout,
    regime: Regime,
    followed: ReplayedJournal | None = None,
    place: Place = Part,
) -> Parameters:
    """The parameters after the last journaled update, counting by `regime` from here on.

    A learning rate that an operator chose stays, unless `regime` has another one than at that time.
    The updates after the newest snapshot are replayed under their own regime. A new regime begins with a
    snapshot, so a replay from the newest snapshot stays within one regime. Raises JournalDamaged.
    """
    snapshot, regimes, regime = journal.snapshot(), journal.regimes(), _adjust_regime(regime, journal)
    if regimes:
        if snapshot.version < regimes[-1].version:
            raise JournalDamaged(
                f"{journal.path}: the snapshot of version {regimes[-1].version} is missing, at which "
                "the settings changed"
            )
        # A snapshot without later updates needs no replay: its regime's names may be unknown by now.
        stopped = regimes[-1].version < snapshot.version == journal.version
        if regimes[-1].regime == regime or not stopped:
            parameters = follow(journal, layout, followed, place).parameters
            if regimes[-1].regime == regime:
                return parameters
            snapshot = _snapshot(parameters)
    journal.add_snapshot(snapshot.version, snapshot.theta, snapshot.average, snapshot.memory)
    journal.add_regime(snapshot.version, regime)
    journal.commit()
    return _load_snapshot(journal.regimes(), snapshot, journal, layout, place)


def follow(
    journal: Contents, layout: Layout, followed: ReplayedJournal | None = None, place: Place = Part
) -> ReplayedJournal:
    """The parameters as of the last journaled update. `followed` ones are updated in place.

    They begin anew at the newest snapshot, in `place`, if the run or regime has changed or they are lost.
    Raises JournalDamaged, also of a run without a regime, and VectorsLost if `place` loses them at once.
    """
    begun, regimes = journal.run(), journal.regimes()
    if begun is None or not regimes:
        raise JournalDamaged(f"{journal.path}: it has no record of how its updates count")
    if followed is not None and (followed.run, followed.regimes) == (begun.run, len(regimes)):
        try:
            _replay(followed.parameters, journal, layout)
            followed.parameters.store.flush()
            return followed
        except VectorsLost as lost:
            log.warning("%s; the run is followed from the newest snapshot on", lost)
    parameters = _load_snapshot(regimes, journal.snapshot(), journal, layout, place)
    _replay(parameters, journal, layout)
    parameters.store.flush()
    return ReplayedJournal(begun.run, len(regimes), parameters)


def replay(journal: Journal, layout: Layout, *, newest: bool = False) -> Parameters:
    """The parameters computed from version 0 and every journaled update that still counts.

    With `newest`, from the newest snapshot. Raises JournalDamaged, ConfigError if updates were not kept.
    """
    return _rebuild(journal, layout, journal.version, newest=newest)


def rebuild_model(journal: Journal, layout: Layout, version: int) -> Parameters:
    """The parameters at a version, from the newest snapshot that leads there.

    Inside a round, those that it started from. Raises ConfigError for an unknown or dropped version.
    """
    if not 0 <= version <= journal.version:
        raise ConfigError(f"version {version}: the run has versions 0 to {journal.version}")
    last = [turn for turn in journal.regimes() if turn.version <= version][-1]
    if last.regime.rounds and version > last.version:
        version = _last_whole_round(journal, layout, version)
    return _rebuild(journal, layout, version, newest=True)


def _last_whole_round(journal: Journal, layout: Layout, version: int) -> int:
    """The last version up to this one that has a model: in a round, only its last version has one."""
    for following in journal.updates(version, version + 1) if version < journal.version else ():
        if following.frame:
            return min(version, decode_update(following, layout)[1].base)
    return version


def _rebuild(
    journal: Journal, layout: Layout, version: int, *, newest: bool, place: Place = Part
) -> Parameters:
    """The parameters at a version, under the regimes that began by then.

    If a regime begins with a rollback, the path leads through the version that it restored: updates between
    do not count.
    """
    pending: list[tuple[Sequence[RegimeStart], int]] = []
    regimes = [turn for turn in journal.regimes() if turn.version <= version]
    while True:
        if not regimes:
            raise JournalDamaged(f"{journal.path}: it has no record of how its updates count")
        last = regimes[-1]
        snapshot = journal.snapshot(first=not newest, until=version)
        pending.append((regimes, version))
        if snapshot.version >= last.version:
            break
        version = last.version if last.rollback_target is None else last.rollback_target
        regimes = [turn for turn in regimes[:-1] if turn.version <= version]
    while True:
        began, version = pending.pop()
        last = began[-1]
        if last.rollback_target is not None and snapshot.version < last.version:
            memory = snapshot.memory
            if last.regime.method.bound:
                memory = OptimizerMemory.unpack(memory, layout.parameters.size).without_waiting().pack()
            snapshot = replace(snapshot, version=last.version, memory=memory)
        parameters = _load_snapshot(began, snapshot, journal, layout, place)
        _replay(parameters, journal, layout, version)
        if not pending:
            return parameters
        snapshot = _snapshot(parameters)


def _adjust_regime(regime: Regime, journal: Journal) -> Regime:
    """`regime` with the same number of working nodes, and the same secret of its noise, as before.

    An operator's learning rate replaces its own if the settings have not changed since. Raises ConfigError if
    the noise of a run that has updates would change: its epsilon would be of neither.
    """
    method = regime.method
    key, ended = secrets.token_hex(32) if method.bound else "", 0
    if regimes := journal.regimes():
        last = regimes[-1].regime.method
        method = replace(method, nodes=last.nodes)
        before, now = (one.local_terms or (one.bound, one.noise, one.tree) for one in (last, method))
        if before != now and journal.version:
            raise ConfigError(
                f"{journal.path}: its updates count with (privacy.clip, noise, tree) = {before}, and the "
                f"settings say {now}, where 0 is no privacy; set these again, or begin a new run"
            )
        if last.bound:
            key, ended = last.noise_key, last.trees_ended
    regime = replace(regime, method=replace(method, noise_key=key, trees_ended=ended))
    adjustment = journal.adjustment()
    if adjustment is None or regime.rule == "elastic":  # elastic averaging has no learning rate
        return regime
    if adjustment.configured == regime.learning_rate:
        return replace(regime, learning_rate=adjustment.chosen)
    journal.add_adjustment(journal.version, regime.learning_rate, regime.learning_rate)
    journal.commit()
    return regime


def _snapshot(parameters: Parameters) -> ModelSnapshot:
    return ModelSnapshot(parameters.version, parameters.theta, parameters.average, parameters.packed_memory())


def _replay(parameters: Parameters, journal: Contents, layout: Layout, until: int | None = None) -> None:
    """Apply the updates that follow, up to the version `until`, all of one regime, as they were applied.

    A journal holds whole rounds only. All steps of a round are based on the version that it starts at, and
    those of the next one on the version that it made.
    """
    gathered: Gathered | None = None
    for step in steps(journal, layout, parameters.version, until):
        if not parameters.regime.rounds:
            try:
                parameters.apply(parameters.limit(step))
            except ValueError as error:  # a base that admission would have refused: see descent/staleness.py
                raise _invalid_entry(journal, parameters.version + 1, error) from error
            continue
        if gathered is not None and step.base != parameters.version:
            parameters.apply(gathered)
            gathered = None
        gathered = gathered or Gathered(layout, parameters.regime.method.aggregate)
        gathered.add(parameters.limit(step))
    if gathered is not None:
        parameters.apply(gathered)


def _load_snapshot(
    regimes: Sequence[RegimeStart],
    snapshot: ModelSnapshot,
    journal: Contents,
    layout: Layout,
    place: Place = Part,
) -> Parameters:
    """The parameters of a snapshot, counting by the last of `regimes`.

    `recent` updates are read for the per-parameter staleness: those in the window since the last rollback
    that the journal still holds.
    """
    regime = regimes[-1].regime
    if not RULES.can_resolve(regime.rule):
        raise JournalDamaged(
            f"{journal.path}: the rule {regime.rule!r} is unknown; known are {', '.join(RULES)}; "
            "install the plug-in that it is of"
        )
    version, first = snapshot.version, journal.first_stored()
    began = max((turn.version for turn in regimes if turn.rollback_target is not None), default=0)
    start = max(began, version - regime.window, version if first is None else min(version, first - 1))
    try:
        return Parameters(
            version,
            snapshot.theta,
            snapshot.average,
            snapshot.memory,
            buffers=layout.buffers,
            norms=layout.norms,
            regime=regime,
            start=start,
            recent=steps(journal, layout, start, version),
            start_time=journal.first_update_time() if version else None,
            place=place,
        )
    except ValueError as error:
        raise JournalDamaged(f"{journal.path}: the snapshot of version {version}: {error}") from error


def steps(journal: Contents, layout: Layout, after: int, until: int | None = None) -> Iterator[Step]:
    """The counting shares of the journaled updates after a version, decoded again."""
    for journaled in journal.updates(after, until):
        try:
            yield decode_update(journaled, layout)[1]
        except Refused as refusal:
            raise _invalid_entry(journal, journaled.version, refusal) from refusal


def _invalid_entry(journal: Contents, version: int, cause: Exception) -> JournalDamaged:
    return JournalDamaged(f"{journal.path}: version {version} is not a valid update of the model: {cause}")


def decode_update(journaled: JournaledUpdate, layout: Layout) -> tuple[Update, Step]:
    """Decode an admitted update again: its record and its step. Raises Refused if it is invalid now."""
    update = wire.decode(journaled.frame)
    if not isinstance(update, Update):
        raise UnexpectedRecord(f"it is a {type(update).__name__}")
    step = admit(
        update,
        layout,
        oldest=0,
        version=journaled.version - 1,
        samples=1 << 62,
        expansion_bytes=1 << 62,
        min_samples=0,
        time=journaled.time,
    )
    return update, step.scaled(journaled.share)
