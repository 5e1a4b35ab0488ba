"""From the journal back to the parameters, bit for bit."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from edgeflock.server.admission import Step, admit
from edgeflock.server.journal import Journal
from edgeflock.server.parameters import Parameters
from edgeflock.server.regime import Regime
from edgeflock.shared import wire
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.layout import Layout
from edgeflock.shared.messages import Update


def recover(journal: Journal, layout: Layout, regime: Regime) -> Parameters:
    """The parameters as they were after the last journaled update, counting by `regime` from here on.

    A learning rate that an operator chose holds on, unless `regime` has another one than it had then.
    Replays what follows the newest snapshot under the regime that held then; a change of regime begins with
    a snapshot of its own, so that a replay from the newest snapshot never crosses one.
    """
    parameters = Parameters(*journal.snapshot(), layout.buffers)
    regimes = journal.regimes()
    regime = _adjusted(regime, journal)
    if regimes:
        _adopt(parameters, regimes[-1][1], journal, layout)
        for _ in _replayed(parameters, _steps(journal, layout, parameters.version)):
            pass
    if not regimes or regimes[-1][1] != regime:
        journal.add_snapshot(parameters.version, parameters.theta, parameters.average)
        journal.add_regime(parameters.version, regime)
        journal.commit()
        _adopt(parameters, regime, journal, layout)
    return parameters


def _adjusted(regime: Regime, journal: Journal) -> Regime:
    """`regime`, with the learning rate that an operator chose since the settings said the same."""
    configured, chosen = journal.adjustment() or (None, 0.0)
    if configured is None:
        return regime
    if configured == regime.learning_rate:
        return replace(regime, learning_rate=chosen)
    journal.forget_adjustments()
    journal.commit()
    return regime


def replay(journal: Journal, layout: Layout) -> Parameters:
    """The parameters computed from version 0 and every journaled update, later snapshots unread."""
    parameters = Parameters(*journal.snapshot(first=True), layout.buffers)
    regimes = journal.regimes()

    def adopt() -> None:
        for start, regime in regimes:
            if start == parameters.version:
                _adopt(parameters, regime, journal, layout)

    adopt()
    starts = {start for start, _ in regimes}
    for version in _replayed(parameters, _steps(journal, layout, 0), starts):
        if version in starts:
            adopt()
    return parameters


def _replayed(
    parameters: Parameters, steps: Iterable[Step], starts: Collection[int] = frozenset()
) -> Iterator[int]:
    """Apply `steps` as they were; yields each version that was published.

    A journal holds whole rounds only. All steps of a round are based on the version that it starts at, and
    those of the next one on the version that it made; and a round ends at the latest where another regime
    `starts`, under which steps may be based on older versions.
    """
    gathered = 0
    for step in steps:
        if gathered and (step.base != parameters.version or parameters.version + gathered in starts):
            gathered = 0
            parameters.end_round()
            yield parameters.version
        if parameters.regime.rounds:
            gathered += 1
            parameters.gather(step)
        else:
            parameters.apply(step)
            yield parameters.version
    if gathered:
        parameters.end_round()
        yield parameters.version


def _adopt(parameters: Parameters, regime: Regime, journal: Journal, layout: Layout) -> None:
    """Learn who touched what over the window from what the journal still holds of it."""
    version, first = parameters.version, journal.first_kept()
    start = max(0, version - regime.window, version if first is None else min(version, first - 1))
    parameters.adopt(regime, start, _steps(journal, layout, start, version))


def _steps(journal: Journal, layout: Layout, after: int, until: int | None = None) -> Iterator[Step]:
    """The journaled updates after a version, decoded again. They were admitted once: only damage fails."""
    for version, frame in journal.updates(after, until):
        update = wire.decode(frame)
        if not isinstance(update, Update):
            raise ConfigError(f"{journal.path}: the entry of version {version} is not an update")
        yield admit(update, layout, oldest=0, version=version, samples=1 << 62, expansion_bytes=1 << 62)
