"""From the journal back to the parameters, bit for bit.

A journal holds what was admitted, in order. What cannot be replayed all the same is damage, and is never
passed over: JournalDamaged names the version.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace

from edgeflock.server.admission import Step, admit
from edgeflock.server.journal import Journal
from edgeflock.server.parameters import Parameters
from edgeflock.server.records import JournaledUpdate, Snapshot
from edgeflock.server.regime import Regime
from edgeflock.server.weighting import RULES
from edgeflock.shared import wire
from edgeflock.shared.errors import JournalDamaged, Refused, UnexpectedRecord
from edgeflock.shared.layout import Layout
from edgeflock.shared.messages import Update


def recover(journal: Journal, layout: Layout, regime: Regime) -> Parameters:
    """The parameters as they were after the last journaled update, counting by `regime` from here on.

    A learning rate that an operator chose holds on, unless `regime` has another one than it had then.
    Replays what follows the newest snapshot under the regime that held then; a change of regime begins with
    a snapshot of its own, so that a replay from the newest snapshot never crosses one. Raises JournalDamaged.
    """
    parameters = _at(journal.snapshot(), journal, layout)
    regimes = journal.regimes()
    regime = _adjusted(regime, journal)
    if regimes:
        _adopt(parameters, regimes[-1].regime, journal, layout)
        for _ in _replayed(parameters, journal, layout):
            pass
    if not regimes or regimes[-1].regime != regime:
        journal.add_snapshot(parameters.version, parameters.theta, parameters.average)
        journal.add_regime(parameters.version, regime)
        journal.commit()
        _adopt(parameters, regime, journal, layout)
    return parameters


def _adjusted(regime: Regime, journal: Journal) -> Regime:
    """`regime`, with the learning rate that an operator chose since the settings said the same."""
    adjustment = journal.adjustment()
    if adjustment is None:
        return regime
    if adjustment.configured == regime.learning_rate:
        return replace(regime, learning_rate=adjustment.chosen)
    journal.forget_adjustments()
    journal.commit()
    return regime


def replay(journal: Journal, layout: Layout) -> Parameters:
    """The parameters computed from version 0 and every journaled update, later snapshots unread.

    Raises JournalDamaged, and ConfigError if the updates were not kept.
    """
    parameters = _at(journal.snapshot(first=True), journal, layout)
    regimes = journal.regimes()

    def adopt() -> None:
        for start in regimes:
            if start.version == parameters.version:
                _adopt(parameters, start.regime, journal, layout)

    adopt()
    starts = {start.version for start in regimes}
    for version in _replayed(parameters, journal, layout, starts):
        if version in starts:
            adopt()
    return parameters


def _at(snapshot: Snapshot, journal: Journal, layout: Layout) -> Parameters:
    """The parameters that a snapshot holds."""
    for vector in (snapshot.theta, snapshot.average):
        if vector is not None and vector.size != layout.size:
            raise JournalDamaged(
                f"{journal.path}: the snapshot of version {snapshot.version} holds {vector.size} numbers, "
                f"the model {layout.size}"
            )
    return Parameters(snapshot.version, snapshot.theta, snapshot.average, layout.buffers)


def _replayed(
    parameters: Parameters, journal: Journal, layout: Layout, starts: Collection[int] = frozenset()
) -> Iterator[int]:
    """Apply the updates that follow as they were; yields each version that was published.

    A journal holds whole rounds only. All steps of a round are based on the version that it starts at, and
    those of the next one on the version that it made; and a round ends at the latest where another regime
    `starts`, under which steps may be based on older versions.
    """
    gathered = 0
    for step in _steps(journal, layout, parameters.version):
        if gathered and (step.base != parameters.version or parameters.version + gathered in starts):
            gathered = 0
            parameters.end_round()
            yield parameters.version
        if parameters.regime.rounds:
            gathered += 1
            parameters.gather(step)
        else:
            try:
                parameters.apply(step)
            except ValueError as error:  # a base that admission would have refused: see staleness.py
                raise _damaged(journal, parameters.version + 1, error) from error
            yield parameters.version
    if gathered:
        parameters.end_round()
        yield parameters.version


def _adopt(parameters: Parameters, regime: Regime, journal: Journal, layout: Layout) -> None:
    """Learn who touched what over the window from what the journal still holds of it."""
    if regime.rule not in RULES:
        raise JournalDamaged(
            f"{journal.path}: the rule {regime.rule!r} is unknown; known are {', '.join(RULES)}"
        )
    version, first = parameters.version, journal.first_kept()
    start = max(0, version - regime.window, version if first is None else min(version, first - 1))
    parameters.adopt(regime, start, _steps(journal, layout, start, version))


def _steps(journal: Journal, layout: Layout, after: int, until: int | None = None) -> Iterator[Step]:
    """The journaled updates after a version, decoded again."""
    for journaled in journal.updates(after, until):
        try:
            step = _step(journaled, layout)
        except Refused as refusal:
            raise _damaged(journal, journaled.version, refusal) from refusal
        yield step


def _damaged(journal: Journal, version: int, why: Exception) -> JournalDamaged:
    return JournalDamaged(f"{journal.path}: the entry of version {version} is no update of the model: {why}")


def _step(journaled: JournaledUpdate, layout: Layout) -> Step:
    """An update that was admitted once. Raises the Refused that says what is wrong with it now."""
    update = wire.decode(journaled.frame)
    if not isinstance(update, Update):
        raise UnexpectedRecord(f"it is a {type(update).__name__}")
    # Versions that wrote schema 3 and older took updates of no samples, which count by nothing else.
    samples = update.samples
    if not samples:
        update = replace(update, samples=1)
    step = admit(
        update, layout, oldest=0, version=journaled.version - 1, samples=1 << 62, expansion_bytes=1 << 62
    )
    return step if samples else replace(step, samples=0)
