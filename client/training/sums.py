"""A device's part in secure sums: it trains, adds its gradient to a round's sum, and pulls the next model.

The crypto and the checks are a state machine (shared/secure_sum/participant.py). If a round is abandoned, the
device takes part in the next one with new keys. It then has a new gradient, if the server may have the sum of
the old one: of two sums of the same gradients, with and without a device, the difference is that device's.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from edgeflock.client.data import NoUsableSamples
from edgeflock.client.training.interfaces import DeviceRun
from edgeflock.client.training.selector import LocalSteps
from edgeflock.shared.errors import BaseExpired, BaseInFuture, ConfigError, ServerAtFault, StepTooLarge
from edgeflock.shared.identity import new_key, public_of
from edgeflock.shared.protocol.backoff import back_off
from edgeflock.shared.protocol.messages import SecureSum, Welcome
from edgeflock.shared.protocol.shown import printable
from edgeflock.shared.protocol.wire import MAX_LEVEL, level
from edgeflock.shared.secure_sum.bounded import quantiser_of
from edgeflock.shared.secure_sum.messages import SumAbandoned, SumStep
from edgeflock.shared.secure_sum.participant import RoundParticipant, RoundTerms
from edgeflock.shared.secure_sum.quantiser import Contribution

log = logging.getLogger(__name__)

_MAX_REFUSALS = 20
"""Wrong rounds in a row until a device gives up: bad devices may well be in five groups of its in a row."""

_LEAST_THRESHOLD = 0.5
"""No run has a lower one."""

_ROUNDING = 1e-4
"""What is left out of a number such as 0.6667 for two thirds."""

_LONGEST = 300
"""Bytes of a reason."""


@dataclass(frozen=True, slots=True)
class SumPolicy:
    """What a device's owner asks of secure sums."""

    identity: bytes = b""
    """Private Ed25519 key, which signs the keys of each round; empty: a new one."""
    fewest: int = 3
    """The fewest devices of a sum."""
    vouched: frozenset[bytes] = frozenset()
    """Public identities of the devices to sum with; empty: any."""
    threshold: float = _LEAST_THRESHOLD
    """The least threshold of a run."""
    noise: float = 0.0
    """The least noise multiplier that a run states."""
    randbytes: Callable[[int], bytes] = os.urandom
    rounding: np.random.Generator = field(default_factory=np.random.default_rng)

    def check(self, welcome: Welcome) -> None:
        """Raise ConfigError if a run offers less than the owner asks for."""
        sums = welcome.sums
        if sums is None:
            if self.vouched or self.threshold > _LEAST_THRESHOLD or self.noise:
                raise ConfigError(
                    "client.vouched, sum_threshold and sum_noise are for secret sums, and this run has no "
                    "secret sums: its server would see each update; leave them out if you trust it"
                )
        elif sums.threshold < self.threshold - _ROUNDING:
            raise ConfigError(
                f"client.sum_threshold = {self.threshold:g}: this run has coordination.threshold = "
                f"{sums.threshold:.4g}; this device does not take part"
            )
        elif self.noise and (not welcome.clip or welcome.noise < self.noise - _ROUNDING):
            stated = welcome.noise if welcome.clip else 0.0  # noise is a multiple of the clip
            raise ConfigError(
                f"client.sum_noise = {self.noise:g}: this run states a multiplier of {stated:.4g} "
                "(privacy.noise); this device does not take part"
            )


class _Refused(Exception):
    """This device does not go on with a round, because of what the server sent."""


class SumParticipant:
    """Takes part in the sums of one run."""

    def __init__(self, run: DeviceRun, policy: SumPolicy) -> None:
        assert run.welcome.sums is not None, "the run has secure sums"
        self._run, self._sums, self._policy = run, run.welcome.sums, policy
        self._identity = policy.identity or new_key()
        log.info("this device's identity in secure sums is %s", public_of(self._identity).hex())
        self._refusals = 0
        """Rounds in a row that this device did not go on with."""
        self._delays = back_off(policy.rounding)

    async def run(self, is_leaving: Callable[[], bool]) -> None:
        """Take part until the device is `is_leaving`. Raises the server's final refusal, or Diverged."""
        while not is_leaving():
            await self._run.batches.ready(self._run.welcome.local_steps)
            if not await self._run.wait_permission():
                await self._train_once()
            await self._run.pull()

    async def _train_once(self) -> None:
        base, trainer, progress = self._run.replica.version, self._run.trainer, self._run.progress
        assert base is not None, "pulled before"
        try:
            steps: LocalSteps = await self._run.train(trainer.contribute, self._run.replica.theta, base)
        except NoUsableSamples:
            return self._run.batches.settle()
        try:
            is_summed = await self._sum(steps, base)
        except (BaseExpired, BaseInFuture) as late:
            progress.count_late(late)
            return self._run.batches.settle()  # the gradient stays in the memory of unsent entries
        except StepTooLarge as large:
            progress.count_too_large(large)
            trainer.undo()
            return self._run.batches.settle()
        progress.too_large = 0
        self._run.batches.settle()
        if is_summed:
            progress.updates += 1
            progress.samples += steps.samples
            progress.loss = steps.loss

    async def _sum(self, steps: LocalSteps, base: int) -> bool:
        """Add the gradient to a sum, once. Return whether it is in one that is in the model."""
        layout, sums = self._run.trainer.layout.parameters, self._sums
        fewest = max(sums.fewest, self._policy.fewest)
        terms = RoundTerms(
            self._run.welcome.run, base, layout.size, len(layout.tensors), sums.threshold, fewest
        )
        while True:
            policy = self._policy
            one: RoundParticipant = await self._run.compute(
                RoundParticipant, terms, self._identity, policy.randbytes, policy.vouched
            )
            try:
                version = await self._take_part(one, steps)
            except SumAbandoned as abandoned:
                log.warning("no sum from version %d: %s", base, abandoned)
            except _Refused as refused:
                self._refusals += 1
                log.warning("this device leaves the round from version %d: %s", base, refused)
                await self._run.server.sum(
                    SecureSum(SumStep.ABANDONED, one.digest, str(refused).encode()[:_LONGEST])
                )
                if self._refusals == _MAX_REFUSALS:
                    raise ServerAtFault(
                        f"{_MAX_REFUSALS} rounds in a row were not right: {refused}"
                    ) from refused
            else:
                self._refusals, self._delays = 0, back_off(policy.rounding)
                if version != base or one.has_sent_values:
                    if out := one.roster.size - one.summed:
                        log.info("version %d is of %d devices; %d dropped out", version, one.summed, out)
                    if one.is_summed:
                        self._run.trainer.mark_summed(one.roster.positions)
                    return one.is_summed
                continue
            await asyncio.sleep(next(self._delays))
            if one.has_sent_values:
                return False

    async def _take_part(self, one: RoundParticipant, steps: LocalSteps) -> int:
        """Lead a participant through a round. Return the version that it made; that of its base: none yet."""
        roster = await self._ask(SumStep.KEYS, b"", one.advertise())
        shares = await self._ask_next(one, SumStep.SHARES, one.share, roster)
        found = one.roster
        layout, clip = self._run.trainer.layout.parameters, self._run.welcome.clip
        coder = quantiser_of(layout, found.positions, self._sums.bits, found.size, clip)
        loss = level(steps.loss)
        added = Contribution(
            steps.gradient[found.positions], steps.samples, MAX_LEVEL if loss is None else loss
        )
        try:
            vector = coder.quantise(added, found.ranges, self._policy.rounding)
        except SumAbandoned as refused:
            raise _Refused(str(refused)) from refused
        survivors = await self._ask_next(one, SumStep.MASKED, one.mask, shares, vector, coder.shape)
        signatures = await self._ask_next(one, SumStep.SIGNATURE, one.sign, survivors)
        outcome = await self._ask_next(one, SumStep.SECRETS, one.reveal, signatures)
        return int.from_bytes(outcome, "big")

    async def _ask_next(
        self, one: RoundParticipant, step: SumStep, make: Callable[..., bytes], *arguments: object
    ) -> bytes:
        try:
            body = await self._run.compute(make, *arguments)
        except SumAbandoned as refused:
            raise _Refused(str(refused)) from refused
        return await self._ask(step, one.digest, body)

    async def _ask(self, step: SumStep, round: bytes, body: bytes) -> bytes:
        """Send a step, and return the body of its answer. Raises SumAbandoned if the server gave up."""
        answer = await self._run.server.sum(SecureSum(step, round, body))
        if answer.step == SumStep.ABANDONED:
            raise SumAbandoned(printable(answer.body.decode("utf-8", "replace"))[:300])
        if answer.step != step:
            raise ServerAtFault(f"the server answered step {step} of a secure sum with step {answer.step}")
        return answer.body
