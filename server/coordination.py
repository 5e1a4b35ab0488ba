"""When updates apply.

A coordinator is offered each admitted step and answers with the steps that apply now, as one new version of
the model: `offer(step)` returns them in order, or none while it holds them back.
"""

from typing import Protocol

from edgeflock.server.admission import Step


class Coordinator(Protocol):
    """Decides when offered steps apply."""

    def offer(self, step: Step) -> tuple[Step, ...]:
        """The steps that make the next version, or () if this one is held for later."""


class Async:
    """Every update applies at once and makes a version of its own: nobody waits for anybody."""

    def offer(self, step: Step) -> tuple[Step, ...]:
        return (step,)
