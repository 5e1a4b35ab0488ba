"""How updates change theta: weighting, staleness, optimizer, and the average of the versions.

`Parameters` is theta under a `Regime`. A `Step` is one update; `Gathered` holds the updates of a round. A
`Stepper` checks steps and takes them. The state of each parameter is in a `Part`, in this process or where a
`Place` puts it. A new weighting rule is a function in weighting.py and a name in `RULES`. Optimizers are in
optimizer.py and `KINDS`; aggregates of rounds are in aggregates.py and `AGGREGATES`. The code follows the
papers' notation. Every operation is one IEEE float32 operation in a fixed order (kernels.py compiles them).
Imports edgeflock.shared only.
"""

from edgeflock.server.descent.aggregates import AGGREGATES, MEAN
from edgeflock.server.descent.gathering import Gathered
from edgeflock.server.descent.memory import OptimizerMemory
from edgeflock.server.descent.optimizer import KINDS
from edgeflock.server.descent.parameters import Parameters, Place
from edgeflock.server.descent.part import Entries, Part, ShardStatus, Vectors, VectorState
from edgeflock.server.descent.rates import SCHEDULES
from edgeflock.server.descent.recoverable import RecoverableVectors, VectorsLost
from edgeflock.server.descent.regime import Regime, StepMethod
from edgeflock.server.descent.step import Index, Step
from edgeflock.server.descent.weighting import RULES
