"""Which devices may take part now: privacy budgets, the trees of a private run, and the turns of a cohort."""

from edgeflock.server.coordination import Cohort, Push
from edgeflock.server.descent import Parameters
from edgeflock.server.engine.judging import RunLifecycle
from edgeflock.server.engine.outcomes import Receipts
from edgeflock.server.privacy import Participations
from edgeflock.shared.errors import BaseExpired, Refused, RunComplete
from edgeflock.shared.protocol.frames import PrivacySpent


class Eligibility:
    """Follows which devices may take part. In a run without privacy and cohorts all may, at any time."""

    def __init__(
        self,
        parameters: Parameters,
        receipts: Receipts,
        lifecycle: RunLifecycle,
        turns: Cohort | None,
        participations: Participations | None,
    ) -> None:
        """`turns` is the cohort, if devices take turns. `participations` has the counts of a private run."""
        self._parameters = parameters
        self._receipts = receipts
        self._lifecycle = lifecycle
        self._turns = turns
        self._participations = participations
        self.is_private = participations is not None
        """Whether the run counts how often a device takes part."""

    def add_device(self, device: int) -> None:
        """A device has joined. Idempotent."""
        if self._participations is not None:
            self._participations.present.add(device)

    def remove_device(self, device: int) -> None:
        """A device has left."""
        if self._participations is not None:
            self._participations.present.discard(device)

    def has_turn(self, device: int) -> bool:
        """Whether the device may be sent the model now. One outside the cohort pulls, and waits.

        So does one that has taken part in the present tree of a private run.
        """
        if not self._may_take_part(device):
            return False
        turns = self._turns
        return turns is None or (device in turns.members and not self._lifecycle.published.complete)

    def check(self, device: int) -> None:
        """Raise RunComplete or BaseExpired unless an update of the device may count now."""
        if (farewell := self.farewell(device)) is not None:
            raise RunComplete(farewell)
        if not self._may_take_part(device):
            raise BaseExpired(
                "an update of this device counts in the present steps already (privacy.tree), and a second "
                "one would cost more privacy; pull again and wait for the answer"
            )

    def record(self, push: Push) -> list[int]:
        """Count an update that is in the model. Return the devices for which the run is over with it."""
        if self._participations is None:
            return []
        devices = push.summed or (push.device,)
        for device in devices:
            self._participations.add(device)
        return [device for device in devices if self.farewell(device) is not None]

    def record_refusal(self, device: int, refusal: Refused) -> None:
        """Count an update that is refused: it may have cost privacy, too."""
        if self._participations is not None and not isinstance(refusal, RunComplete):
            self._participations.add_refused(device)

    def farewell(self, device: int) -> str | None:
        """Return why the run is over for a device, whose privacy budget is spent; None: it is not."""
        return None if self._participations is None else self._participations.farewell(device)

    @property
    def privacy_spent(self) -> PrivacySpent | None:
        """What differential privacy has cost so far; None: the run has none."""
        return None if self._participations is None else self._participations.spent

    def end_reason(self) -> str | None:
        """Return why the run is over, as its privacy budget is spent; None: it is not."""
        participations = self._participations
        return None if participations is None else participations.end_reason(self._parameters.waiting)

    def is_tree_stuck(self) -> bool:
        """Whether each connected device that has budget left has taken part in the present tree."""
        noise = self._parameters.noise
        if self._participations is None or noise is None or noise.is_fresh or not self._lifecycle.is_open():
            return False
        left = [device for device in self._participations.present if self._participations.has_left(device)]
        return bool(left) and not any(self._may_take_part(device) for device in left)

    def _may_take_part(self, device: int) -> bool:
        """Whether an update of the device may count now: it has none in the present tree."""
        if self._participations is None:
            return True
        noise, last = self._parameters.noise, self._receipts.last_version(device)
        return self._participations.has_left(device) and (noise is None or last <= noise.begun)
