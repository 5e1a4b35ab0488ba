"""[optimizer]: how the server takes a step with a gradient that is weighed."""

from typing import Annotated

from pydantic import Field

from edgeflock.shared.settings.choices import one_of_the_ends
from edgeflock.shared.settings.settings import Section


class OptimizerSettings(Section):
    """How the server steps, after coordination.rule has weighed an update. docs/optimizers.md"""

    kind: Annotated[str, one_of_the_ends("optimizer.kind")] = Field(
        "sgd", description="sgd, momentum, nesterov, adam, adamw, adagrad"
    )
    beta1: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.9, description="the momentum; of adam and adamw, of the mean"
    )
    beta2: Annotated[float, Field(ge=0, lt=1)] = Field(0.999, description="of adam and adamw, of the squares")
    epsilon: Annotated[float, Field(ge=1e-12, le=1)] = Field(
        1e-8, description="of adam, adamw and adagrad: added to the root"
    )
    weight_decay: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="part of a parameter that is added to its gradient; of adamw, beside it"
    )
    clip: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0, description="the largest norm of an update's gradient; 0: any"
    )
