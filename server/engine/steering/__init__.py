"""The life of a run apart from its updates: its end, evaluations, snapshots, rollbacks and learning rate.

judging.py says whether the run takes updates, decides by evaluations, and says whether a model is lost.
steering.py handles requests of operators and hosts, and says when the journal gets a snapshot. Imports
descent and publication, and the engine's log.py and outcomes.py.
"""

from edgeflock.server.engine.steering.judging import Criteria, EvaluationJudge, RunLifecycle
from edgeflock.server.engine.steering.steering import Recovery, Snapshots, Steering
