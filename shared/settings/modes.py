"""The modes of coordination: what each value of coordination.mode means outside of its coordinator.

Whoever needs to know asks for a trait, `config.coordination.traits.rounds`, and never for a name. The
coordinators themselves are in server/coordination. One of another package has the traits of `Mode()`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Mode:
    rounds: bool = False
    """The updates of one version wait for the end of their round and apply together."""
    cohort: bool = False
    """coordination.cohort says how many devices take part at a time; the others wait for their turn."""
    tasks: bool = False
    """The server tells a device which data shard to compute next."""
    buffers: bool = False
    """Several updates make a step, but each is answered at once."""
    elastic: bool = False
    """An update is the difference between the model and a device's own parameters, not a gradient."""
    private: bool = False
    """The server gets the sums of devices' gradients, and no single one."""
    adafactor: bool = False
    """Devices use Adafactor if the settings name no optimizer."""
    downlink: str = "lossy"
    """The usual downlink.mode."""
    defaults: Mapping[str, object] = field(default_factory=dict)
    """The mode's own defaults of settings in [coordination]."""

    @property
    def gathers(self) -> bool:
        """Whether several updates make a step."""
        return self.rounds or self.buffers


DEFAULT = "async"

MODES: Mapping[str, Mode] = {
    "async": Mode(adafactor=True, cohort=True),
    "buffer": Mode(buffers=True, defaults={"rule": "sqrt"}),  # as in FedBuff
    "rounds": Mode(rounds=True),
    "cohort": Mode(rounds=True, cohort=True, defaults={"cohort": 20}),
    "tasks": Mode(rounds=True, tasks=True, defaults={"tasks": 1}),
    "private": Mode(
        rounds=True,
        cohort=True,
        private=True,
        defaults={"cohort": 100, "quorum": 3, "rule": "none", "average": 0.0},
    ),
    "elastic": Mode(elastic=True, downlink="exact", defaults={"rule": "elastic"}),  # weighs by alpha alone
}


def traits_of(name: object) -> Mode:
    """Return the traits of the mode `name`, unchecked."""
    return MODES.get(str(name), Mode())
