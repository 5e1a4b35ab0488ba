"""The run's health: a picture every few seconds, its findings, and their listeners.

The only state of its own is the history of the evaluations.
"""

import asyncio
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from edgeflock.server.findings import (
    EVERY,
    AgreementTracker,
    Diagnosis,
    Divergence,
    EvaluationHistory,
    Picture,
    Portrait,
    Targets,
    changes,
    diagnose,
)
from edgeflock.server.monitoring.evaluation import Evaluator
from edgeflock.server.monitoring.portraits import Portraits, usual_loss
from edgeflock.server.sessions import RunHost, Writer
from edgeflock.shared.protocol.frames import EventKind, Finding

_FEW = 500
"""Devices above which looks become rarer in proportion, to take the same part of the server's time."""

_PAUSED = 5.0
"""A look that is this many seconds late means that the process was paused, for example stopped."""

_AT_ONCE = 250
"""Portraits that are made before the event loop serves devices."""


class RunHealth:
    """Watches the health of a run."""

    def __init__(
        self,
        host: RunHost,
        evaluator: Evaluator,
        writer: Writer,
        agreement: AgreementTracker,
        told: Callable[[Finding], object] = lambda finding: None,
        keeps_waiting: Callable[[float], float] = lambda now: 0.0,
        targets: Targets | None = None,
    ) -> None:
        """`told` is called with each finding when it begins. `keeps_waiting` returns until when devices that
        have sent nothing had to wait for the server, as of a moment of the monotonic clock. `targets` are the
        regression targets, if they are not scaled.
        """
        self._host, self._evaluator, self._writer = host, evaluator, writer
        self._portraits, self._targets = Portraits(agreement.of), targets
        self._told, self._keeps_waiting = told, keeps_waiting
        self._course, self._diagnosis = EvaluationHistory(), Diagnosis()
        self._listens_since = 0.0
        """The monotonic time since which this process has run without a pause; 0: ever since it started."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the last look, the worst first."""
        return self._diagnosis.findings

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            pause = EVERY * max(1.0, len(self._host.registry.devices) / _FEW)
            due = time.monotonic() + pause
            await asyncio.sleep(pause)
            self.wake(due)
            await self.look()

    def wake(self, due: float) -> None:
        """Note that a look was due at the monotonic time `due`. If that is long ago, this process was paused,
        and it has read nothing from devices meanwhile.
        """
        now = time.monotonic()
        if now - due > _PAUSED:
            self._listens_since = now

    async def look(self, later: float = 0.0) -> None:
        """Find what is wrong now, or would be in `later` seconds. Report what begins and what is over."""
        before = self.findings
        self._diagnosis = diagnose(await self._picture(later), self._diagnosis)
        new = changes(before, self.findings)
        for finding in new.over:
            self._note("over", finding, finding.kind)
        for finding in new.began:
            self._note("finding", finding, f"{finding.kind}: {finding.text}; {finding.remedy}")
            self._told(finding)

    def _note(self, kind: EventKind, finding: Finding, text: str) -> None:
        device = None if finding.device is None else self._host.registry.devices.get(finding.device)
        self._host.hub.note(kind, device, text)

    async def _picture(self, later: float) -> Picture:
        host, evaluator = self._host, self._evaluator
        history = evaluator.history
        devices = [device for device in host.registry.devices.values() if device.id]
        for evaluation in history[self._course.count :]:
            # The training loss of evaluations before the server started is unknown.
            self._course = self._course.after(evaluation, usual_loss(devices))
        portraits: list[Portrait] = []
        for start in range(0, len(devices), _AT_ONCE):
            if start:
                await asyncio.sleep(0)
            now, clock = time.time() + later, time.monotonic()
            until = self._keeps_waiting(clock)
            some = devices[start : start + _AT_ONCE]
            since = self._listens_since
            portraits += (self._portraits.of(one, now, clock, until, since) for one in some)
        why, suspect = evaluator.diverged, evaluator.suspect
        blamed = None if suspect is None or not suspect.stands_out else suspect.device
        return Picture(
            time=time.time() + later,
            version=host.published.version,
            state=evaluator.state,
            diverged=None if why is None else Divergence(why, blamed),
            course=self._course,
            evaluated=evaluator.evaluates,
            free=_free(Path(host.config.run.directory)),
            commit=self._writer.commit_seconds,
            devices=tuple(portraits),
            targets=self._targets,
            labels=() if host.described is None else host.described.labels,
        )


def _free(directory: Path) -> int | None:
    """Return the free bytes where the journal is."""
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return None
