"""The path of an update, pure: admitted, coordinated, journaled, applied, published. No sockets, no clock.

`Engine` is the only writer of the model. It hands out what came of each update (`Accepted` or a refusal)
and what everybody may see (`Published`), never ahead of its log. What operators and evaluations do to a run
is a room of its own, steering. What a device is told of the run is welcome.py's, what it is sent of the model
publication's. Imports publication, coordination and descent; neither asyncio nor aiohttp.
"""

from edgeflock.server.engine.engine import Engine
from edgeflock.server.engine.limits import EngineLimits, check_limits, frame_bytes, part_of
from edgeflock.server.engine.outcomes import Accepted, Answer, Published
from edgeflock.server.engine.steering import Criteria, EvaluationJudge

__all__ = [
    "Accepted",
    "Answer",
    "EngineLimits",
    "Criteria",
    "Engine",
    "EvaluationJudge",
    "Published",
    "check_limits",
    "frame_bytes",
    "part_of",
]
