"""The run's health: a picture every few seconds, what is found in it, and who is told.

It keeps no more than the picture needs and nobody else has: how the evaluations went, and of each device what
it told a while ago.
"""

import asyncio
import shutil
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from edgeflock.server.findings import (
    EVERY,
    Agreement,
    Blamed,
    Course,
    Picture,
    Portrait,
    Targets,
    changes,
    findings,
)
from edgeflock.server.operations.evaluation import Evaluator
from edgeflock.server.roster import Device
from edgeflock.server.sessions import Host, Writer
from edgeflock.shared.protocol.frames import EventKind, Finding
from edgeflock.shared.protocol.messages import Facts

_FEW = 500
"""Devices. Of more, looks are as much rarer, so that they take the same part of the server's time."""

_AT_ONCE = 250
"""Portraits that are made before the devices get a turn."""

_LATELY = 120.0
"""Seconds that lost samples are counted over."""


@dataclass(slots=True)
class _Told:
    """What a device has told of itself."""

    facts: Facts | None = None
    """What it said last."""
    clock: float | None = None
    """Seconds that its clock was ahead then."""
    drops: deque[tuple[float, int]] = field(default_factory=deque)
    """(time, samples lost by then) of late."""


class Health:
    """Looks after a run."""

    def __init__(
        self,
        host: Host,
        evaluator: Evaluator,
        writer: Writer,
        agreement: Agreement,
        told: Callable[[Finding], object] = lambda finding: None,
        keeps_waiting: Callable[[float], float] = lambda now: 0.0,
        targets: Targets | None = None,
    ) -> None:
        """`told` gets each finding when it begins. `keeps_waiting` says until when devices that have sent
        nothing yet had to wait for the server, as of a moment of the monotonic clock. `targets` are the
        numbers to predict, if they are not scaled.
        """
        self.findings: tuple[Finding, ...] = ()
        """As of the last look, the worst first."""
        self._host, self._evaluator, self._writer = host, evaluator, writer
        self._agreement, self._targets = agreement, targets
        self._told, self._keeps_waiting = told, keeps_waiting
        self._course = Course()
        self._kept: dict[str, _Told] = {}

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(EVERY * max(1.0, len(self._host.registry.devices) / _FEW))
            await self.look()

    async def look(self) -> None:
        """Find what is wrong now, and tell what has begun and what is over."""
        found = findings(await self._picture(), self.findings)
        new = changes(self.findings, found)
        self.findings = found
        for finding in new.over:
            self._note("over", finding, finding.kind)
        for finding in new.began:
            self._note("finding", finding, f"{finding.kind}: {finding.text}; {finding.remedy}")
            self._told(finding)

    def _note(self, kind: EventKind, finding: Finding, text: str) -> None:
        device = None if finding.device is None else self._host.registry.devices.get(finding.device)
        self._host.hub.note(kind, device, text)

    async def _picture(self) -> Picture:
        host, evaluator = self._host, self._evaluator
        history = evaluator.history
        for evaluation in history[self._course.count :]:
            # Of those before the server started nobody knows the training loss.
            self._course = self._course.after(evaluation, host.hub.tally.loss)
        portraits: list[Portrait] = []
        devices = [device for device in host.registry.devices.values() if device.id]
        for start in range(0, len(devices), _AT_ONCE):
            if start:
                await asyncio.sleep(0)
            now, clock = time.time(), time.monotonic()
            portraits += (self._portrait(one, now, clock) for one in devices[start : start + _AT_ONCE])
        why, suspect = evaluator.diverged, evaluator.suspect
        return Picture(
            time=time.time(),
            version=host.published.version,
            state=evaluator.state,
            diverged=None if why is None else Blamed(why, None if suspect is None else suspect.device),
            course=self._course,
            free=_free(Path(host.config.run.directory)),
            commit=self._writer.commit_seconds,
            devices=tuple(portraits),
            targets=self._targets,
        )

    def _portrait(self, device: Device, now: float, clock: float) -> Portrait:
        connection, done = device.connection, device.statistics
        told, heard = self._told_by(device, now), connection.last_heard
        if heard and not done.last_update:
            heard = max(heard, self._keeps_waiting(clock))
        waiting, temperature = done.telemetry.get("waiting"), done.telemetry.get("temperature")
        held_out = done.telemetry.get("held_out")
        return Portrait(
            name=device.name,
            here=device.present,
            silent=clock - heard if heard else 0.0,
            idle=device.is_idle(clock),
            starved=isinstance(waiting, int | float) and waiting > 0,
            why_left=connection.why_left,
            seen=self._agreement.of(device.id),
            lag=done.lag,
            refused=done.refused,
            refusing=done.refusing,
            dropped=told.drops[-1][1] - told.drops[0][1] if told.drops else 0,
            drops=told.drops[-1][1] if told.drops else 0,
            temperature=temperature if isinstance(temperature, int | float) else None,
            throttled=bool(done.telemetry.get("throttled")),
            undervoltage=bool(done.telemetry.get("undervoltage")),
            held_out=held_out if type(held_out) is int else 0,
            clock=told.clock,
        )

    def _told_by(self, device: Device, now: float) -> _Told:
        facts = device.statistics.telemetry
        told = self._kept.setdefault(device.name, _Told())
        if facts is not told.facts:
            told.facts = facts
            clock, drops = facts.get("clock"), facts.get("drops")
            told.clock = clock - device.connection.last_seen if type(clock) is int else None
            if type(drops) is int:
                if told.drops and drops < told.drops[-1][1]:  # its process has begun anew
                    told.drops.clear()
                told.drops.append((now, drops))
        while len(told.drops) > 1 and told.drops[1][0] < now - _LATELY:
            told.drops.popleft()
        return told


def _free(directory: Path) -> int | None:
    """Bytes of room where the journal is."""
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return None
