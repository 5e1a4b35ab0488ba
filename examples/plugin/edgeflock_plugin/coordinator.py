"""coordination.mode = "wary": as async, but nothing of a device whose own loss is no number any more."""

import math

from edgeflock.server.coordination import Apply, Push
from edgeflock.server.coordination.asynchronous import Asynchronous
from edgeflock.server.descent import Step
from edgeflock.shared.errors import NonFinite
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.settings.coordination import CoordinationSettings


class Wary(Asynchronous):
    @classmethod
    def of(cls, settings: CoordinationSettings, layout: Layout) -> "Wary":
        return cls()

    def offer(self, push: Push, step: Step, now: float) -> Apply | None:
        if not math.isfinite(push.update.loss):
            raise NonFinite("the loss of this batch is no number; look at the device's data")
        return super().offer(push, step, now)
