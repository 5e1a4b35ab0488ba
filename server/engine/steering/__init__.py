"""What becomes of a run beside its updates.

course.py says until when it takes them, judging.py what evaluations decide, snapshots.py when a version is
kept whole, steering.py what operators and hosts ask of it. Imports descent and publication, and of the
engine's room what an engine needs of a log and what it hands out.
"""

from edgeflock.server.engine.steering.course import RunLifecycle
from edgeflock.server.engine.steering.judging import Criteria, EvaluationJudge
from edgeflock.server.engine.steering.snapshots import Snapshots
from edgeflock.server.engine.steering.steering import Recovery, Steering

__all__ = ["RunLifecycle", "Criteria", "EvaluationJudge", "Recovery", "Snapshots", "Steering"]
