"""Regression targets whose scale is far from what models learn best."""

from typing import Any, NamedTuple

from numpy.typing import NDArray

from edgeflock.shared.model.description import need_scaling

REMEDY = (
    "scale the targets in the data, to mean 0 and deviation 1 (stored data's are, without scale=none), or "
    "lower coordination.learning_rate; then begin another run, or undo the leap: edgeflock rollback VERSION"
)


class Targets(NamedTuple):
    """The mean and deviation of the held-out targets, as models learn them."""

    mean: float
    deviation: float

    @classmethod
    def from_y(cls, y: NDArray[Any]) -> "Targets | None":
        """Return None for classes."""
        return cls(float(y.mean()), float(y.std())) if y.dtype.kind == "f" and y.size else None

    @property
    def problem(self) -> str:
        """Why models do not learn the targets well; empty if their scale is fine."""
        if not need_scaling(self.mean, self.deviation):
            return ""
        return (
            f"the targets have mean {self.mean:.3g} and deviation {self.deviation:.3g}, and models learn "
            "best of about 0 and 1"
        )
