"""The path of an update: admit, coordinate, journal, apply, publish. It uses no sockets and no clock.

`Engine` is the only writer of the model. It returns the result of each update (`Accepted` or a refusal) and
the public state of the run (`Published`), never ahead of its journal. steering.py handles what operators do
to a run, and judging.py what evaluations do. welcome.py makes the Welcome of a device. server/publication
makes the models for devices. Imports journal and below; neither asyncio nor aiohttp.
"""

from edgeflock.server.engine.engine import Engine
from edgeflock.server.engine.judging import Criteria, EvaluationJudge
from edgeflock.server.engine.limits import EngineLimits, check_limits, frame_bytes, requested_slice
from edgeflock.server.engine.outcomes import Accepted, Answer, Published
