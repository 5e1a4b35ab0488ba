"""The feed of a run for its watchers: frames (protocol/frames.py), made from the server's state."""

import asyncio
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from edgeflock.server.defence import DefenceGuard
from edgeflock.server.evaluation.evaluator import Evaluator
from edgeflock.server.monitoring.health import RunHealth
from edgeflock.server.monitoring.parts import PartRates
from edgeflock.server.roster import Device
from edgeflock.server.sessions import GatewayConnection, RunHost
from edgeflock.shared.model.chunks import chunks
from edgeflock.shared.protocol.frames import (
    COLUMNS,
    MAX_FINDINGS,
    Delta,
    DeviceRow,
    DeviceState,
    Evaluation,
    Frame,
    Overview,
    Point,
    Role,
    RunFacts,
    Snapshot,
    finite_or_none,
)
from edgeflock.shared.protocol.shown import labels_text

MAX_EVALUATIONS = 2000
"""The most evaluations in a frame: more than a curve on a terminal has columns."""

FIRST_EVENTS = 200
"""The most events in a snapshot."""

_BATCH = 250
"""Rows that are made before the event loop serves devices: about a millisecond."""

_LARGEST = 1e15
"""The largest number that is accepted in telemetry."""

_COUNT_SECONDS = 0.1
"""Seconds for which the sums over all devices are reused: for 10,000 devices they take milliseconds."""


@dataclass(frozen=True, slots=True)
class WatcherPosition:
    """The position of a watcher in the feed, which is all its state."""

    changes: int
    events: int
    evaluations: int
    learning_rate: float


class Feed:
    """Makes frames for watchers."""

    def __init__(
        self, host: RunHost, evaluator: Evaluator, health: RunHealth, lines: Sequence[GatewayConnection]
    ) -> None:
        self._host = host
        self._parts = PartRates(host, lines)
        self._evaluator = evaluator
        self._health = health
        self._counts = (-math.inf, 0, 0)
        """When devices were counted, how many were present, and the bytes that all had sent."""

    async def next_frame(self, role: Role, position: WatcherPosition | None) -> tuple[Frame, WatcherPosition]:
        """Return (the next frame for a watcher, its new position).

        The frame is a full snapshot if the watcher has seen nothing yet or a setting was changed.
        """
        hub, history = self._host.hub, self._evaluator.history
        rate = self._host.published.learning_rate
        now = WatcherPosition(hub.changes, hub.events.count, len(history), rate)
        if position is None or position.learning_rate != rate:
            events, _ = hub.events.list_from(now.events - FIRST_EVENTS)
            known = evaluations(history)
            devices = await rows(list(self._host.registry.devices.values()), self._guard)
            return Snapshot(time.time(), self._run(), role, devices, self.overview(), known, events), now
        events, missed = hub.events.list_from(position.events)
        new = evaluations(history[position.evaluations :])
        changed = await rows(list(hub.devices_changed_since(position.changes)), self._guard)
        return Delta(time.time(), self.overview(), changed, new, events, missed), now

    @property
    def _guard(self) -> DefenceGuard | None:
        return self._host.engine.guard

    def _run(self) -> RunFacts:
        host, layout = self._host, self._host.layout
        return RunFacts(
            run=host.terms.run,
            model=host.config.model.module,
            parameters=layout.parameters.size,
            layout_size=layout.size,
            updates_target=host.config.end.updates,
            config=settings(host),
        )

    def overview(self) -> Overview:
        """Return the present overview of the run."""
        host, tally = self._host, self._host.hub.tally
        version, total = host.published.version, host.traffic.total
        present, sent = self._count_devices()
        updates, ingress, egress = host.hub.rates()
        dense = dense_bytes(host, version)
        return Overview(
            version=version,
            updates_per_s=round(updates, 3),
            ingress=total.ingress,
            egress=total.egress,
            ingress_rate=round(ingress, 1),
            egress_rate=round(egress, 1),
            dense_bytes=dense,
            reduction=round(dense / sent, 1) if sent else None,
            staleness=list(tally.staleness),
            devices=len(host.registry.devices),
            up=present,
            cnc=tally.compressed / tally.updates if tally.updates else None,
            loss=tally.loss,
            evaluation_failed=self._evaluator.failed_at is not None,
            state=self._evaluator.state,
            shared_samples=host.relay.samples,
            tasks=None if host.engine.tasks is None else host.engine.tasks.status(),
            findings=self._health.findings[:MAX_FINDINGS],
            more_findings=max(0, len(self._health.findings) - MAX_FINDINGS),
            began=host.engine.parameters.start_time,
            gateways=self._parts.gateways(),
            shards=self._parts.shards(),
            restored=host.engine.parameters.store.restorations,
            privacy=host.engine.eligibility.privacy_spent,
        )

    def _count_devices(self) -> tuple[int, int]:
        """Return how many devices are present, and the bytes that all have sent, as of a moment ago."""
        counted, present, sent = self._counts
        if (now := time.monotonic()) - counted > _COUNT_SECONDS:
            devices = self._host.registry.devices.values()
            present = sum(device.present for device in devices)
            sent = sum(device.connection.traffic[0] for device in devices)
            self._counts = now, present, sent
        return present, sent


def evaluations(history: Sequence[Evaluation]) -> tuple[Evaluation, ...]:
    """Return all evaluations, or evenly spaced ones with the newest."""
    step = -(-len(history) // MAX_EVALUATIONS) or 1
    return tuple(
        e._replace(loss=finite_or_none(e.loss), accuracy=finite_or_none(e.accuracy))
        for e in history[::-step][::-1]
    )


def dense_bytes(host: RunHost, updates: int) -> int:
    """Return the bytes of so many updates as dense float32. In elastic averaging an update is one chunk."""
    coordination = host.config.coordination
    each = len(chunks(host.layout, coordination.chunk)) if coordination.traits.elastic else 1
    return 4 * host.layout.size * updates // each


def settings(host: RunHost) -> dict[str, Any]:
    """Return section -> key -> current value, without secrets and without client settings."""
    sections = host.config.model_dump(
        exclude={"client": True, "server": {"certificate", "key"}, "journal": {"url"}}
    )
    if not host.config.coordination.traits.elastic:
        sections["coordination"]["learning_rate"] = host.published.learning_rate
    return sections


def flat_settings(host: RunHost) -> dict[str, str | int | float | bool]:
    """Return section.key -> value of `settings`, lists as text."""
    return {
        f"{section}.{key}": value if isinstance(value, str | int | float | bool) else str(value)
        for section, keys in settings(host).items()
        for key, value in keys.items()
    }


async def rows(devices: Sequence[Device], guard: DefenceGuard | None) -> tuple[DeviceRow, ...]:
    """Return the rows of the devices that have a number; others have not arrived yet."""
    result: list[DeviceRow] = []
    now = time.monotonic()
    for start in range(0, len(devices), _BATCH):
        if start:
            await asyncio.sleep(0)
        result += (row(device, guard, now) for device in devices[start : start + _BATCH] if device.id)
    return tuple(result)


def row(device: Device, guard: DefenceGuard | None, now: float) -> DeviceRow:
    """Return the row of a device at `now` by the monotonic clock. `guard` is the run's defence.

    Facts that the device reports are used only if they have the right type.
    """
    connection, done = device.connection, device.statistics
    ingress, egress = connection.traffic
    facts, telemetry = device.facts, done.telemetry
    live = done.last_update > 0
    undervoltage = telemetry.get("undervoltage")
    defence = None if guard is None else guard.record(device.id)
    return DeviceRow(
        id=device.id,
        name=device.name,
        state=state(device, now),
        class_=_text(facts.get("class")) or _text(facts.get("machine")),
        backend=_text(facts.get("backend")),
        rate=_number(telemetry.get("rate")),
        batch=done.batch if live else None,
        depth=_integer(telemetry.get("depth")),
        drops=_integer(telemetry.get("drops")),
        quarantined=_integer(telemetry.get("quarantined")),
        duplicates=_integer(telemetry.get("duplicates")),
        stream_accuracy=_number(telemetry.get("stream_accuracy")),
        stream_loss=_number(telemetry.get("stream_loss")),
        last_seen=connection.last_seen or None,
        staleness=done.staleness if live else None,
        loss=finite_or_none(done.loss) if live else None,
        updates=done.updates,
        refused=done.refused,
        ingress=ingress,
        egress=egress,
        samples=done.samples,
        compressed=done.compressed,
        cpu=_number(telemetry.get("cpu")),
        ram=_number(telemetry.get("ram")),
        temperature=_number(telemetry.get("temperature")),
        battery=_number(telemetry.get("battery")),
        undervoltage=None if _integer(undervoltage) is None else bool(undervoltage),
        shards=device.shards or None,
        repeated=done.duplicates if device.shards else None,
        paused_because=pause_reason(device),
        smoothed_loss=finite_or_none(done.smoothed_loss),
        updates_per_s=round(1 / done.interval, 3) if connection.is_connected and done.interval > 0 else None,
        why_left=connection.leave_reason,
        memory=_number(facts.get("memory")),
        clipped=None if defence is None else defence.clipped,
        dropped=None if defence is None else defence.dropped,
        standing=None if defence is None else defence.standing,
        labels=labels_text(device.labels) or None,
        edgeflock=_text(facts.get("version")),
    )


def pause_reason(device: Device) -> str | None:
    """Return why the device is paused; None if it is not."""
    if device.connection.order is not None:
        return device.connection.order.reason
    until = device.conduct.quarantined_until
    if until <= time.time():
        return None if device.owner_pause is None else f"by its owner: {device.owner_pause}"
    return f"in quarantine until {time.strftime('%H:%M:%S', time.localtime(until))}"


def state(device: Device, now: float) -> DeviceState:
    """Return the device's state. It is "paused" also while away: it will not train when it returns."""
    if pause_reason(device) is not None:
        return "paused"
    if not device.connection.is_connected:
        return "away"
    if device.connection.awaits_turn:
        return "waiting"
    if not device.is_idle(now):
        return "training"
    return "starved" if (_number(device.statistics.telemetry.get("waiting")) or 0) > 0 else "idle"


def document(device: Device, guard: DefenceGuard | None) -> dict[str, Any]:
    """Return a device with its history, as plain JSON types."""
    history = device.statistics.history
    points: Iterable[Point] = history.points() if history is not None else ()
    return {
        "device": dict(zip(COLUMNS, row(device, guard, time.monotonic()), strict=True)),
        "history": [list(point) for point in points],
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> float | None:
    """Return the number; None if it is implausibly large and would fill a screen."""
    return value if isinstance(value, int | float) and abs(value) <= _LARGEST else None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) else None
