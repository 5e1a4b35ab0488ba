"""The ways to coordinate, by the name that `coordination.mode` gives them."""

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
        "buffer": Asynchronous.of,  # how many make a step is the regime's
        "elastic": Asynchronous.of,  # what an update is of is between the devices and the rule
    },
    lambda found: found if callable(found) else None,
)


def coordinator_of(settings: CoordinationSettings, layout: Layout) -> Coordinator:
    if settings.tasks:
        return TaskRounds.of(settings, layout)
    return MODES.chosen(settings.mode)(settings, layout)
