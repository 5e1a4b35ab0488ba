"""Secure sums of a run: gathers the devices of a round, leads them through its steps, and pushes their sum.

The round itself is a state machine without I/O (shared/secure_sum/aggregator.py). Here are the devices that
wait for its answers, and the time that a step waits for them. What a sum does to the model is in
sum_updates.py. A round that the server does not end is forgotten: its devices begin another with new keys.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from edgeflock.server.coordination import Cohort
from edgeflock.server.engine import Engine
from edgeflock.server.sessions.answers import SumAnswer, settle
from edgeflock.server.sessions.context import UpdateQueue
from edgeflock.server.sessions.sum_updates import SumUpdates
from edgeflock.shared.errors import BaseExpired, BaseInFuture, Refused, RunComplete, Superseded
from edgeflock.shared.protocol.messages import SecureSum
from edgeflock.shared.protocol.shown import printable
from edgeflock.shared.secure_sum.aggregator import check_keys
from edgeflock.shared.secure_sum.groups import GroupedRound
from edgeflock.shared.secure_sum.keys import PublicKeys
from edgeflock.shared.secure_sum.messages import VERSION_BYTES, SumAbandoned, SumStep
from edgeflock.shared.settings.config import Config

log = logging.getLogger(__name__)

_GRACE = 2.0
"""Seconds in which a device whose connection broke in a round may come back."""

_UNKNOWN = "the server does not know this round: it is over, or the server has restarted"


class SumQueue(UpdateQueue, Protocol):
    """The part of a Writer that secure sums use."""

    def wake(self) -> None:
        """Let the engine check what is due, and wake devices whose turn it is."""

    async def wait_for_change(self) -> None:
        """Wait until a round ends, a device's presence changes, or the engine's `due` passes."""


@dataclass(slots=True)
class _Applicant:
    """A device that waits for a round."""

    base: int
    keys: PublicKeys
    answer: "asyncio.Future[SumAnswer]"


class SecureSums:
    """The secure sums of one run, one after the other."""

    def __init__(
        self, run: str, config: Config, engine: Engine, queue: SumQueue, note: Callable[[int, str], None]
    ) -> None:
        """`note` gets a line about each round without a sum, and each device (0: none) that leaves one."""
        self._run, self._engine, self._queue, self._note = run, engine, queue, note
        self._updates = SumUpdates(run, config, engine, queue)
        self._fewest = config.coordination.quorum * config.coordination.groups
        self._cohort = config.coordination.cohort
        self._seconds = config.coordination.deadline
        self._applicants: dict[int, _Applicant] = {}
        self._late: set[int] = set()
        """Devices that missed the end of a step. Nobody waits for them until they send something."""
        self._round: GroupedRound | None = None
        self._answers: dict[int, asyncio.Future[SumAnswer]] = {}
        """Devices of the round that wait for the answer to the present step."""
        self._time = 0.0
        """When the latest device sent its vector."""
        self._is_finishing = False
        """Whether all steps of the round are done, and its sum is computed."""
        self._is_hurried = False
        """Whether the present step waits only for devices that have lost their connection."""
        self._is_due = False
        """Whether the present step waits for nobody any more."""
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def take(self, device: int, time: float, message: SecureSum) -> SumAnswer:
        """Return the answer to a step of a device, which may take long. `time` is when it arrived.

        Raises Malformed, BaseExpired, BaseInFuture, RunComplete, or the refusal of the sum.
        """
        answer: asyncio.Future[SumAnswer] = asyncio.get_running_loop().create_future()
        # asyncio warns of an exception that is never retrieved: its device may be gone.
        answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        self._late.discard(device)
        if message.step in (SumStep.KEYS, SumStep.ABANDONED) and self._round is not None:
            if message.step == SumStep.ABANDONED and device in self._round.missing:
                self._note_reason(self._round, device, message.body)
            self._round.leave(device)
        if message.step == SumStep.ABANDONED:
            answer.set_result(_abandoned(message.round, "this device has left the round"))
        elif message.step == SumStep.KEYS:
            self._apply_for_round(device, message.body, answer)
        else:
            self._receive(device, time, message, answer)
        self._check()
        return await answer

    def _note_reason(self, round: GroupedRound, device: int, body: bytes) -> None:
        """Note why a device leaves the round, and of which device of the round it speaks."""
        reason = printable(body.decode("utf-8", "replace"))
        self._note(device, f"it leaves a round of a secure sum: {reason}")
        if found := re.search(r"\bdevice ([0-9]{1,5}) of the round", reason):
            if (other := round.at_position(device, int(found[1]))) is not None:
                self._note(other, f"it is device {found[1]} of that round, if the first one is right")

    def close(self) -> None:
        """End all waiting. The devices are disconnected."""
        self._set_timer(None)
        for task in self._tasks:
            task.cancel()

    def _apply_for_round(self, device: int, body: bytes, answer: "asyncio.Future[SumAnswer]") -> None:
        base, keys = check_keys(self._run, body)
        self._check_base(base)
        if (farewell := self._engine.eligibility.farewell(device)) is not None:
            raise RunComplete(farewell)
        if not self._turns.may_contribute(device):
            raise BaseExpired("other devices take part in this round; pull again and wait for the answer")
        if (earlier := self._applicants.pop(device, None)) is not None:
            settle(earlier.answer, Superseded("the device sent its keys again"))
        self._applicants[device] = _Applicant(base, keys, answer)
        if self._round is None and len(self._applicants) == 1:
            self._start_step()

    def _check_base(self, base: int) -> None:
        """Raise the refusal of a sum from version `base`, if it cannot count."""
        published = self._engine.published
        if published.complete:
            raise RunComplete(published.farewell)
        if base > published.version:
            raise BaseInFuture(f"base {base} is ahead of the model's version {published.version}; pull first")
        if base < published.version:
            raise BaseExpired(f"the round from version {base} is over; pull again")

    def _receive(
        self, device: int, time: float, message: SecureSum, answer: "asyncio.Future[SumAnswer]"
    ) -> None:
        round = self._round
        if round is None or device not in round.devices or round.digest(device) != message.round:
            return answer.set_result(_abandoned(message.round, _UNKNOWN))
        if self._is_finishing and message.step == SumStep.SECRETS:
            self._answers[device] = answer  # it has lost its connection
            return
        try:
            round.receive(device, message.step, message.body)
        except SumAbandoned as late:
            return answer.set_result(_abandoned(message.round, str(late)))
        if message.step < round.step:
            return answer.set_result(self._answer(round, device))
        self._time = max(self._time, time)
        self._answers[device] = answer

    def _check(self) -> None:
        """Go on if no device is missing that may still come."""
        if self._round is None:
            self._begin_if_ready()
        elif not self._is_finishing:
            missing = self._round.missing
            if self._is_due or not missing:
                self._go_on(self._round)
            elif not self._is_hurried and not self._awaited(missing):
                self._is_hurried = True
                self._set_timer(min(_GRACE, self._seconds))

    @property
    def _turns(self) -> Cohort:
        turns = self._engine.turns
        assert turns is not None, "secure sums are of a cohort"
        return turns

    def _awaited(self, devices: Set[int]) -> Set[int]:
        """Those of `devices` that are present and in time."""
        return (devices & self._turns.members) - self._late

    def _begin_if_ready(self) -> None:
        """Begin a round if all devices whose turn it is are here, or enough of them after the time for it."""
        for device, one in list(self._applicants.items()):
            if one.answer.done():  # it has disconnected
                del self._applicants[device]
                continue
            try:
                self._check_base(one.base)
            except Refused as refusal:
                settle(self._applicants.pop(device).answer, refusal)
        members = dict(list(self._applicants.items())[: self._cohort])
        if len(members) < self._fewest:
            return
        if (
            not self._is_due
            and len(members) < self._cohort
            and self._awaited(self._turns.members) - members.keys()
        ):
            return
        self._begin_round(self._engine.published.version, members)

    def _begin_round(self, version: int, members: dict[int, _Applicant]) -> None:
        for device in members:
            del self._applicants[device]
        if self._is_due:
            self._late |= self._turns.members - members.keys()
        self._round = self._updates.begin(version, {device: one.keys for device, one in members.items()})
        self._answers = {device: one.answer for device, one in members.items()}
        self._answer_all(self._round)

    def _go_on(self, round: GroupedRound) -> None:
        """End the present step."""
        if self._is_due:
            self._late |= round.missing
        if round.step == SumStep.SECRETS:
            self._run_task(self._finish(round))
            return
        try:
            round.advance()
        except SumAbandoned as abandoned:
            self._abandon(round, str(abandoned))
        else:
            self._answer_all(round)

    def _answer_all(self, round: GroupedRound) -> None:
        """Answer the devices that have sent the last step, and wait for the next one."""
        answers, self._answers = self._answers, {}
        self._start_step()
        for device, answer in answers.items():
            settle(answer, self._answer(round, device))

    def _answer(self, round: GroupedRound, device: int) -> SumAnswer:
        if reason := round.failure(device):
            return _abandoned(round.digest(device), reason)
        return SumAnswer(SecureSum(round.step - 1, round.digest(device), round.answer(device)))

    async def _finish(self, round: GroupedRound) -> None:
        """Compute the sum, and push it. The round ends whatever happens."""
        self._is_finishing = True
        self._set_timer(None)
        try:
            await self._push(round)
        except SumAbandoned as abandoned:
            return self._abandon(round, str(abandoned))
        except Exception:
            log.exception("the sum of %d devices failed", len(round.devices))
            return self._abandon(round, "the server failed to compute it, and its log has the reason")
        await self._end(round)

    async def _push(self, round: GroupedRound) -> None:
        version, applied = round.base, None
        refused: Refused | None = None
        try:
            applied = await self._updates.finish(round, self._time)
        except Refused as refusal:
            self._note(0, f"the sum of {len(round.summed)} devices was refused: {refusal}")
            refused = refusal
        for reason in round.failures:
            self._note(0, f"a group of the sum from version {round.base} is left out: {reason}")
        if applied is not None:
            version = applied[1].receipt.version
            if out := round.devices - round.summed:
                log.info("version %d is of %d devices; %d dropped out", version, len(round.summed), len(out))
        body = version.to_bytes(VERSION_BYTES, "big")
        for device, answer in self._answers.items():
            outcome = SumAnswer(
                SecureSum(SumStep.SECRETS, round.digest(device), body),
                applied if device in round.summed else None,
            )
            if reason := round.failure(device):
                outcome = _abandoned(round.digest(device), reason)
            settle(answer, refused or outcome)

    def _abandon(self, round: GroupedRound, reason: str) -> None:
        """Give up the round. Its devices may begin another one."""
        self._is_finishing = True
        self._note(0, f"no sum of {len(round.devices)} devices from version {round.base}: {reason}")
        for device, answer in self._answers.items():
            settle(answer, _abandoned(round.digest(device), reason))
        self._run_task(self._end(round))

    async def _end(self, round: GroupedRound) -> None:
        """Give the seats of devices that were late to others, and let the next round begin."""
        for device in round.wrong:
            self._note(device, "it revealed a wrong share in a secure sum")
        late = self._late & round.devices
        with suppress(Refused):
            await self._queue.call(lambda: self._turns.miss_turns(late))
        self._round, self._answers, self._is_finishing = None, {}, False
        self._queue.wake()
        self._start_step()
        self._check()

    def _start_step(self) -> None:
        """Give devices their time for the next step, if any of them waits."""
        self._is_due = self._is_hurried = False
        waits = self._round is not None or bool(self._applicants)
        self._set_timer(self._seconds if waits else None)
        if waits and (self._watcher is None or self._watcher.done()):
            self._watcher = self._run_task(self._watch())

    def _set_timer(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = None if seconds is None else loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        """The time of the present step is over."""
        self._is_due = True
        if self._round is None and len(self._applicants) < self._fewest:
            self._note(0, f"{len(self._applicants)} of at least {self._fewest} devices are here for a sum")
            self._set_timer(self._seconds)
        self._check()

    async def _watch(self) -> None:
        """Check again whenever a device comes or leaves, or the version changes, while any device waits."""
        while self._round is not None or self._applicants:
            await self._queue.wait_for_change()
            self._check()

    def _run_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _abandoned(digest: bytes, reason: str) -> SumAnswer:
    return SumAnswer(SecureSum(SumStep.ABANDONED, digest, reason.encode()))
