"""Frames of a made-up run, the same ones every time: what a fleet of Pis, Jetsons and laptops might tell."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace

from edgeflock.shared.protocol.frames import (
    BINS,
    Delta,
    DeviceRow,
    Evaluation,
    Event,
    Finding,
    Frame,
    GatewayRow,
    Overview,
    Role,
    RunFacts,
    ShardRow,
    Snapshot,
    staleness_bin,
)
from edgeflock.tui.sources.state import MonitorState, reduce

BEGAN = 1_763_740_800.0
"""2025-11-21 16:00:00 UTC."""
MEMORY = {"pi4": 3792.0, "pi5": 8062.0, "jetson": 7620.0, "zero2w": 416.0}
"""MiB; a laptop's client does not say."""

CLASSES = ("pi4", "pi5", "jetson", "laptop", "zero2w")
DENSE = 4 * 38_282


CONFIG = {
    "server": {"directory": "edgeflock-run", "host": "0.0.0.0", "port": 8470},
    "local": {"batch": 10},
    "end": {"updates": 8000},
    "model": {
        "seed": 0,
        "module": "edgeflock.client.zoo:DigitsCNN",
        "loss": "cross_entropy",
        "data": "digits:",
    },
    "coordination": {
        "rule": "adacomp",
        "learning_rate": 0.05,
        "window": 256,
        "mode": "async",
        "quorum": 0,
        "deadline": 30.0,
        "average": 0.0,
    },
    "compression": {
        "select": 0.01,
        "balance": 1.0,
        "feedback": 0.0,
        "indices": "golomb",
        "values": "codebook4",
    },
    "limits": {"frame_bytes": 1 << 26, "samples": 65536, "devices": 10000},
}
"""What a server tells of its settings; fixed here, so that a new setting changes no screen."""


def run(number: int) -> RunFacts:
    model = "edgeflock.client.zoo:DigitsCNN"
    return RunFacts("5f3c0ad1e2b49687", model, 38_282, 38_282, 8000 if number < 20 else 20_000, CONFIG)


def rows(number: int, second: int, rng: random.Random) -> list[DeviceRow]:
    """The devices a number of seconds into the run; some are away, paused, hot or low on battery."""
    made = []
    for n in range(1, number + 1):
        kind = CLASSES[n * 7 % len(CLASSES)]
        gone, paused, idle = n % 11 == 7, n % 17 == 5, n % 13 == 4
        speed = {"pi4": 0.8, "pi5": 1.4, "jetson": 2.6, "laptop": 4.0, "zero2w": 0.2}[kind]
        active = min(second, 40) if gone or paused else second
        updates = int(active * speed)
        made.append(
            DeviceRow(
                n,
                f"{kind}-{n}",
                "away" if gone else "paused" if paused else "idle" if idle else "training",
                kind,
                "torch" if kind == "laptop" else "onnx",
                round(8 * speed, 1),
                10 if kind != "laptop" else 32,
                n * 3 % 40,
                (n % 9 == 3) * 12,
                (n % 8 == 5) * 7,
                (n % 6 == 1) * 40,
                round(1 - 0.9 * math.exp(-second / 180), 4) if n % 3 else None,
                round(2.2 * math.exp(-second / 180), 4) if n % 3 else None,
                BEGAN + active - (n % 13 == 4) * 38.0 - rng.random(),
                int(number * (0.5 + rng.random())),
                round(2.2 * math.exp(-second / 180) + 0.1 + 0.05 * rng.random(), 4) if updates else None,
                updates,
                (n % 9 == 2) * 3,
                updates * 655,
                updates * 9_120,
                updates * 10,
                updates,
                round(20 + 70 * rng.random(), 1),
                float(180 + n % 40),
                round(45 + (n * 13 % 45) * 0.95, 1) if kind != "laptop" else None,
                float(n * 17 % 100) if kind == "laptop" else None,
                n % 19 == 3 if kind.startswith("pi") else None,
                3,
                n % 4,
                "too hot on the roof, by admin" if paused else None,
                round(2.2 * math.exp(-second / 180) + 0.12, 4) if updates else None,
                None if gone else speed,
                ("killed: the connection broke" if n % 2 else "retired: stopped by its owner")
                if gone
                else None,
                MEMORY.get(kind),
                None,
                None,
                None,
                "site=north" if n % 5 == 0 else None,
                "0.2.0",
            )
        )
    return made


def frames(
    number: int = 14, seconds: int = 240, *, role: Role = "viewer", seed: int = 7, every: int = 1
) -> Iterator[Frame]:
    """A snapshot and then a delta every `every` seconds."""
    rng = random.Random(seed)
    reported = run(number)
    bins = [0] * BINS
    before: dict[int, DeviceRow] = {}
    smoothed = 0.0
    for second in range(0, seconds + 1, every):
        now = BEGAN + second
        devices = rows(number, second, rng)
        for row in devices:
            made = row.updates - (before[row.id].updates if row.id in before else 0)
            if row.staleness is not None:
                for _ in range(min(made, 20)):
                    bins[staleness_bin(int(rng.gammavariate(2.5, number / 2.5)))] += 1
        version, ingress = sum(row.updates for row in devices), sum(row.ingress for row in devices)
        made = version - sum(row.updates for row in before.values())
        rate = made / every if before else 0.0
        smoothed += (rate - smoothed) * 0.3
        wobble = 1 + 0.15 * math.sin(second / 9) + 0.1 * (rng.random() - 0.5)
        overview = Overview(
            version=version,
            updates_per_s=round(smoothed * wobble, 2),
            ingress=ingress,
            egress=sum(row.egress for row in devices),
            ingress_rate=round(smoothed * wobble * 655, 1),
            egress_rate=round(smoothed * wobble * 3_120, 1),
            dense_bytes=version * DENSE,
            reduction=round(version * DENSE / (ingress + 20_000), 1) if ingress else None,
            staleness=list(bins),
            devices=number,
            up=sum(row.state not in ("away", "paused") for row in devices),
            cnc=1.0,
            loss=round(2.2 * math.exp(-second / 150) + 0.09 + 0.02 * rng.random(), 4) if second else None,
            evaluation_failed=False,
            state="training",
            shared_samples=0,
            tasks=None,
        )
        events: tuple[Event, ...] = ()
        evaluations: tuple[Evaluation, ...] = ()
        if second % 2 == 0 and second:
            accuracy = 0.985 - 0.88 * math.exp(-second / 45) + 0.004 * (rng.random() - 0.5)
            loss = 2.2 * math.exp(-second / 60) + 0.06 + 0.01 * rng.random()
            evaluations = (
                Evaluation(version, now, round(loss, 4), round(accuracy, 4), ingress, overview.egress),
            )
        if second == 0:
            events = tuple(Event(now - 2, "joined", row.name, "from 192.0.2.7") for row in devices[:8])
        if second % 60 == 40:
            events += (
                Event(now, "left", devices[6 % number].name, "connection lost"),
                Event(now, "paused", devices[4 % number].name, "too hot on the roof, by admin"),
            )
        if second % 90 == 50:
            events += (
                Event(now, "refused", devices[1 % number].name, "base-expired: base 12 is 300 versions old"),
            )
        if second % 100 == 99 or second == 60:
            events += (Event(now, "checkpoint", None, f"snapshot of version {version:,}"),)
        if second == 120:
            events += (Event(now, "config", None, "learning rate 0.1 -> 0.05, by admin"),)
        if second == 0:
            yield Snapshot(now, reported, role, tuple(devices), overview, evaluations, events)
        else:
            changed = tuple(row for row in devices if row.state == "training" or second <= 41)
            yield Delta(now, overview, changed, evaluations, events, 0)
        before = {row.id: row for row in devices}


def state(number: int = 14, seconds: int = 240, role: Role = "viewer") -> MonitorState:
    """The state after all of them."""
    reached: MonitorState | None = None
    for frame in frames(number, seconds, role=role):
        reached = reduce(reached, frame)
    assert reached is not None, "there is a snapshot at least"
    return reached


def spread(frame: Frame, gateways: int, shards: int = 0, restored: int = 0) -> Frame:
    """`frame`, of a run over so many."""
    rows = tuple(
        GatewayRow(
            *(f"gateway-{number}", "192.0.2.7", frame.time - 3600, 5000 - number),
            *(498.2, 91_300.0, None, 4_000_000 * (number == 1)),
        )
        for number in range(gateways)
    )
    slices = tuple(ShardRow("one" if number < 2 else "two", 793_000_000) for number in range(shards))
    reported = replace(frame.overview, gateways=rows, shards=slices, restored=restored)
    return replace(frame, overview=reported)


FINDINGS = (
    Finding(
        "disk", "critical", None, BEGAN + 200, "the disk of the journal is nearly full", "make room on it"
    ),
    Finding(
        "disagrees",
        "warning",
        "jetson-1",
        BEGAN + 60,
        "its updates point away from the server's own gradient: 0.12 below that of 9 in 10 devices",
        "look at its labels; pause it meanwhile: edgeflock top, p",
    ),
    Finding(
        "gone", "notice", "laptop-4", BEGAN - 90_000, "nothing came for a day", "see whether it has power"
    ),
)


def unwell(frame: Frame) -> Frame:
    """`frame`, of a run with findings; more than are told."""
    return replace(frame, overview=replace(frame.overview, findings=FINDINGS, more_findings=2))
