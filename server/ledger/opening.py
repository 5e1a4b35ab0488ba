"""Make the engine of a run from its journal, with the settings that hold from here on."""

import struct
from dataclasses import replace
from functools import partial
from pathlib import Path

from edgeflock.server.coordination import Gate, create_coordinator
from edgeflock.server.defence import MIN_NORMS, DefenceGuard
from edgeflock.server.descent import Part, Place, Regime
from edgeflock.server.engine import Criteria, Engine, EngineLimits, EvaluationJudge
from edgeflock.server.journal import Journal
from edgeflock.server.ledger.recovery import ReplayedJournal, rebuild_model, recover, restore
from edgeflock.server.privacy import Accountant, Participations, check_privacy, count_updates
from edgeflock.server.publication import publication_of
from edgeflock.shared.errors import JournalDamaged
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.settings.config import Config


def open_engine(
    journal: Journal,
    layout: Layout,
    config: Config,
    directory: Path | None = None,
    followed: ReplayedJournal | None = None,
    place: Place = Part,
) -> Engine:
    """The engine of the run in `journal`, as it was left, with the settings that hold from here on.

    Data for devices may be in `directory`, to save memory. What was `followed` is not replayed again.
    `place` makes the store of the parameters, which are restored from the journal if it loses them.

    Raises JournalDamaged, and VectorsLost if the store is lost at once.
    """
    regime, participations = Regime.from_config(config, bool(layout.norms)), None
    if config.privacy.mode != "none":
        check_privacy(config, layout)
        accountant = Accountant(config)
        group = max(1, regime.method.group, regime.method.together)
        if regime.method.summed:
            group = config.coordination.quorum
        participations = Participations(accountant, count_updates(journal.update_devices()), group)
        noise = accountant.noise if regime.method.bound else 0.0
        method = replace(regime.method, noise=noise, local_terms=accountant.local_terms)
        regime = replace(regime, method=method)
    parameters = recover(journal, layout, regime, followed, place)
    parameters.store.restore = lambda lost: restore(journal, layout, place, parameters.version, lost)
    coordinator = create_coordinator(config.coordination, layout)
    run = journal.run()
    start = run.start if run else None
    first = journal.snapshot(first=True).theta
    publication = publication_of(config, layout, parameters.version, first if start else None, directory)
    bounds = EngineLimits.from_config(config).with_initial(first[: layout.parameters.size])
    past = partial(rebuild_model, journal, layout)
    gate = Gate(config.coordination.bound) if config.coordination.gate == "asp" else None
    adjusted = journal.adjustment()
    rate_version = adjusted.version if adjusted else 0
    judge = EvaluationJudge(Criteria.from_config(config), journal.evaluations(), rate_version)
    guard = None
    if config.defence.mode != "none":
        held = 0 if parameters.regime.rounds else MIN_NORMS  # devices may not get beyond one round
        try:
            guard = DefenceGuard(config.defence.mode, journal.defence_decisions(), held)
        except struct.error as error:
            raise JournalDamaged(f"{journal.path}: what a defence decided cannot be read: {error}") from error
    return Engine(
        journal, layout, parameters, coordinator, bounds, publication, start, past, gate, judge, guard,
        participations,
    )  # fmt: skip
