"""The run's health: its status every few seconds, the findings, and their listeners.

The only state of its own is the history of the evaluations.
"""

import asyncio
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from edgeflock.server.evaluation.evaluator import Evaluator
from edgeflock.server.findings import (
    INTERVAL,
    AgreementTracker,
    DeviceStatus,
    Diagnosis,
    Divergence,
    EvaluationHistory,
    RunStatus,
    Targets,
    diagnose,
)
from edgeflock.server.monitoring.device_status import DeviceStatuses, usual_loss
from edgeflock.server.sessions import RunHost, Writer
from edgeflock.shared.protocol.frames import EventKind, Finding

_FULL_RATE_DEVICES = 500
"""Devices above which checks become rarer in proportion, to take the same part of the server's time."""

_PAUSE_SECONDS = 5.0
"""A check that is this many seconds late means that the process was paused, for example stopped."""

_BATCH = 250
"""Device statuses that are made before the event loop serves devices."""


class RunHealth:
    def __init__(
        self,
        host: RunHost,
        evaluator: Evaluator,
        writer: Writer,
        agreement: AgreementTracker,
        on_finding: Callable[[Finding], object] = lambda finding: None,
        waiting_until: Callable[[float], float] = lambda now: 0.0,
        targets: Targets | None = None,
    ) -> None:
        """Calls `on_finding` with each finding when it begins.

        `waiting_until` maps a monotonic time to the time until which devices that have sent nothing had to
        wait for the server. `targets` are the regression targets, if they are not scaled.
        """
        self._host, self._evaluator, self._writer = host, evaluator, writer
        self._statuses, self._targets = DeviceStatuses(agreement.averages), targets
        self._on_finding, self._waiting_until = on_finding, waiting_until
        self._history, self._diagnosis = EvaluationHistory(), Diagnosis()
        self._listening_since = 0.0
        """The monotonic time since which this process has run without a pause; 0: ever since it started."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the last check, the worst first."""
        return self._diagnosis.findings

    async def run(self) -> None:
        """Check repeatedly, until cancelled."""
        while True:
            pause = INTERVAL * max(1.0, len(self._host.registry.devices) / _FULL_RATE_DEVICES)
            due = time.monotonic() + pause
            await asyncio.sleep(pause)
            self.note_pause(due)
            await self.check()

    def note_pause(self, due: float) -> None:
        """Note that a check was due at the monotonic time `due`.

        If that is long ago, this process was paused, and it has read nothing from devices meanwhile.
        """
        now = time.monotonic()
        if now - due > _PAUSE_SECONDS:
            self._listening_since = now

    async def check(self) -> None:
        """Find what is wrong now. Report what begins and what is over."""
        self._diagnosis = diagnose(await self._run_status(), self._diagnosis)
        for finding in self._diagnosis.ended:
            self._note("over", finding, f"{finding.kind} has ended")
        for finding in self._diagnosis.began:
            self._note("finding", finding, f"{finding.kind}: {finding.text}; {finding.remedy}")
            self._on_finding(finding)

    def _note(self, kind: EventKind, finding: Finding, text: str) -> None:
        device = None if finding.device is None else self._host.registry.devices.get(finding.device)
        self._host.hub.note(kind, device, text)

    async def _run_status(self) -> RunStatus:
        host, evaluator = self._host, self._evaluator
        history = evaluator.history
        devices = [device for device in host.registry.devices.values() if device.id]
        for evaluation in history[self._history.count :]:
            # The training loss of evaluations before the server started is unknown.
            self._history = self._history.with_evaluation(evaluation, usual_loss(devices))
        statuses: list[DeviceStatus] = []
        for start in range(0, len(devices), _BATCH):
            if start:
                await asyncio.sleep(0)
            now, clock = time.time(), time.monotonic()
            until = self._waiting_until(clock)
            batch = devices[start : start + _BATCH]
            since = self._listening_since
            statuses += (self._statuses.status(one, now, clock, until, since) for one in batch)
        reason, suspect = evaluator.divergence, evaluator.suspect
        blamed = None if suspect is None or not suspect.is_large else suspect.device
        return RunStatus(
            time=time.time(),
            version=host.published.version,
            state=evaluator.state,
            divergence=None if reason is None else Divergence(reason, blamed),
            history=self._history,
            is_evaluated=evaluator.has_data,
            free_bytes=_free_bytes(Path(host.config.server.directory)),
            commit_seconds=self._writer.commit_seconds,
            devices=tuple(statuses),
            targets=self._targets,
            labels=() if host.terms.data is None else host.terms.data.labels,
            outdated=host.registry.outdated,
        )


def _free_bytes(directory: Path) -> int | None:
    """Return the free bytes where the journal is."""
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return None
