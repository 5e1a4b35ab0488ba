"""Numbers to predict that are far from what models learn best."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_LARGE, _SMALL = 10.0, 0.05
"""Targets usually this far from 0 make steps leap at the usual rates; this near they are lost in noise."""

REMEDY = (
    "scale the targets in the data, to mean 0 and deviation 1 (tables are, without scale=none), or lower "
    "coordination.learning_rate; then begin another run, or undo the leap: edgeflock rollback VERSION"
)


class Targets(NamedTuple):
    """Of held-out data, as models learn them."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, y: NDArray[Any]) -> "Targets | None":
        """None of classes."""
        return cls(float(y.mean()), float(y.std())) if y.dtype.kind == "f" and y.size else None

    @property
    def far(self) -> str:
        """Why models do not learn them well; empty if nothing is in the way."""
        reach = float(np.hypot(self.mean, self.deviation))
        if _SMALL <= reach <= _LARGE or not np.isfinite(reach):
            return ""
        return (
            f"the targets have mean {self.mean:.3g} and deviation {self.deviation:.3g}, and models learn "
            "best of about 0 and 1"
        )
