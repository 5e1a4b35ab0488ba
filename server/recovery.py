"""From the journal back to the parameters, bit for bit."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.admission import Step, admit
from edgeflock.server.coordinators import coordinator_of
from edgeflock.server.engine import Engine
from edgeflock.server.gathering import Gathered
from edgeflock.server.journal import Journal
from edgeflock.server.limits import Bounds
from edgeflock.server.parameters import Parameters
from edgeflock.server.regime import Regime
from edgeflock.shared import wire
from edgeflock.shared.config import Config
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.layout import Layout
from edgeflock.shared.messages import Update


def open_engine(journal: Journal, layout: Layout, config: Config) -> Engine:
    """The engine of the run in `journal`, as it was left, with the settings that hold from here on."""
    parameters = recover(journal, layout, Regime.of(config.coordination))
    coordinator = coordinator_of(config.coordination, layout)
    return Engine(journal, layout, parameters, coordinator, Bounds.of(config), config.model.pull)


def recover(journal: Journal, layout: Layout, regime: Regime) -> Parameters:
    """The parameters as they were after the last journaled update, counting by `regime` from here on.

    A learning rate that an operator chose holds on, unless `regime` has another one than it had then.
    Replays what follows the newest snapshot under the regime that held then; a change of regime begins with
    a snapshot of its own, so that a replay from the newest snapshot never crosses one.
    """
    snapshot, regimes, regime = journal.snapshot(), journal.regimes(), _adjusted(regime, journal)
    if regimes:
        parameters = _under(regimes[-1][1], *snapshot, journal, layout)
        _apply(parameters, layout, _steps(journal, layout, parameters.version))
        if regimes[-1][1] == regime:
            return parameters
        snapshot = parameters.version, parameters.theta, parameters.average
    journal.add_snapshot(*snapshot)
    journal.add_regime(snapshot[0], regime)
    journal.commit()
    return _under(regime, *snapshot, journal, layout)


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
    regimes = journal.regimes()
    assert regimes, "a run is recovered before it is replayed"
    ends = [*(start for start, _ in regimes[1:]), None]
    snapshot = journal.snapshot(first=True)
    for (start, regime), end in zip(regimes, ends, strict=True):
        parameters = _under(regime, *snapshot, journal, layout)
        _apply(parameters, layout, _steps(journal, layout, start, end))
        snapshot = parameters.version, parameters.theta, parameters.average
    return parameters


def _apply(parameters: Parameters, layout: Layout, steps: Iterable[Step]) -> None:
    """Take `steps`, all of one regime, as they were taken.

    A journal holds whole rounds only. All steps of a round are based on the version that it starts at, and
    those of the next one on the version that it made.
    """
    gathered: Gathered | None = None
    for step in steps:
        if not parameters.regime.rounds:
            parameters.apply(step)
            continue
        if gathered is not None and step.base != parameters.version:
            parameters.apply(gathered)
            gathered = None
        gathered = gathered or Gathered(layout)
        gathered.add(step)
    if gathered is not None:
        parameters.apply(gathered)


def _under(
    regime: Regime,
    version: int,
    theta: NDArray[np.float32],
    average: NDArray[np.float32] | None,
    journal: Journal,
    layout: Layout,
) -> Parameters:
    """Learn who touched what over the window from what the journal still holds of it."""
    first = journal.first_kept()
    start = max(0, version - regime.window, version if first is None else min(version, first - 1))
    recent = _steps(journal, layout, start, version)
    return Parameters(
        version, theta, average, buffers=layout.buffers, regime=regime, start=start, recent=recent
    )


def _steps(journal: Journal, layout: Layout, after: int, until: int | None = None) -> Iterator[Step]:
    """The journaled updates after a version, decoded again. They were admitted once: only damage fails."""
    for version, frame in journal.updates(after, until):
        update = wire.decode(frame)
        if not isinstance(update, Update):
            raise ConfigError(f"{journal.path}: the entry of version {version} is not an update")
        yield admit(update, layout, oldest=0, version=version, samples=1 << 62, expansion_bytes=1 << 62)
