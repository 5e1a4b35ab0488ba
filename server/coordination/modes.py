"""Coordinators by their name in `coordination.mode`. shared/settings/modes.py has the traits of the modes."""

from collections.abc import Callable

from edgeflock.server.coordination.asynchronous import Asynchronous
from edgeflock.server.coordination.coordinator import Coordinator
from edgeflock.server.coordination.rounds import Rounds
from edgeflock.server.coordination.tasks import TaskRounds
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.plugins import Table
from edgeflock.shared.settings.coordination import CoordinationSettings

CoordinatorFactory = Callable[[CoordinationSettings, Layout], Coordinator]

MODES: Table[CoordinatorFactory] = Table(
    "edgeflock.coordinators",
    {
        "async": Asynchronous.from_settings,
        "buffer": Asynchronous.from_settings,  # the regime has the number of updates a step
        "rounds": Rounds.from_settings,
        "cohort": Rounds.from_settings,
        "private": Rounds.from_settings,  # a sum comes as one update (sessions/sums.py)
        "tasks": TaskRounds.from_settings,
        "elastic": Asynchronous.from_settings,  # the devices and the rule define what an update contains
    },
    lambda found: found if callable(found) else None,
)


def create_coordinator(settings: CoordinationSettings, layout: Layout) -> Coordinator:
    return MODES.resolve(settings.mode)(settings, layout)
