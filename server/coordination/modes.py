"""Coordinators by their name in `coordination.mode`."""

from collections.abc import Callable

from edgeflock.server.coordination.asynchronous import Asynchronous
from edgeflock.server.coordination.coordinator import Coordinator
from edgeflock.server.coordination.rounds import Rounds
from edgeflock.server.coordination.tasks import TaskRounds
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.plugins import Table
from edgeflock.shared.settings.coordination import CoordinationSettings

Make = Callable[[CoordinationSettings, Layout], Coordinator]

MODES: Table[Make] = Table(
    "edgeflock.coordinators",
    {
        "async": Asynchronous.of,
        "rounds": Rounds.of,
        "buffer": Asynchronous.of,  # the regime has the number of updates a step
        "elastic": Asynchronous.of,  # the devices and the rule define what an update contains
    },
    lambda found: found if callable(found) else None,
)


def coordinator_of(settings: CoordinationSettings, layout: Layout) -> Coordinator:
    if settings.tasks:
        return TaskRounds.of(settings, layout)
    return MODES.chosen(settings.mode)(settings, layout)
