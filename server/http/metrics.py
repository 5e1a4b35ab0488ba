"""The run's metrics in Prometheus' text format, read from the server's counts on each request."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily as Counter
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import HistogramMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from edgeflock.server.http.keys import EVALUATOR, FEED, GATEWAYS, HEALTH, HOST, WRITER
from edgeflock.server.http.roles import VIEWER, allows
from edgeflock.server.monitoring import feed
from edgeflock.server.sessions import GatewayConnection, RunHost
from edgeflock.shared.errors import REFUSALS
from edgeflock.shared.protocol.frames import BINS, LEFT, DeviceRow, DeviceState, Evaluation, Finding, Overview

routes = web.RouteTableDef()

_CLASS_LIMIT = 100
"""The most classes that have a series each."""

STATES: tuple[DeviceState, ...] = ("training", "waiting", "starved", "idle", "paused", "away")


@routes.get("/metrics")
@allows(VIEWER)
async def get_metrics(request: web.Request) -> web.Response:
    """All metrics of the run, its devices and the server's process."""
    host, evaluator = request.app[HOST], request.app[EVALUATOR]
    rows = await feed.rows(list(host.registry.devices.values()), host.engine.guard)
    evaluation = feed.evaluations(evaluator.history[-1:])
    overview, ready = request.app[FEED].overview(), request.app[WRITER].unavailable_reason is None
    limit = host.config.limits.device_series
    newest, findings = evaluation[0] if evaluation else None, request.app[HEALTH].findings[:limit]
    families = list(run_metrics(host, overview, rows, newest, findings, ready=ready))
    families += gateway_metrics(request.app[GATEWAYS].connections)
    few = rows[:limit]
    # Formatting thousands of numbers takes as long as hundreds of pushes, so a thread does it.
    octets = await asyncio.to_thread(lambda: _text([*families, *device_metrics(few)]))
    return web.Response(body=octets, headers={"Content-Type": CONTENT_TYPE_LATEST})


class _MetricList(Collector):
    """A collector of metrics that exist already."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _text(metrics: list[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_MetricList(metrics))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


Family = type[Counter | Gauge]


def _family(
    family: Family, name: str, text: str, label: str, values: Iterable[tuple[str, float | None]]
) -> Metric:
    """A metric with a series for each value of its label; None has no series."""
    metric = family(f"edgeflock_{name}", text, labels=[label])
    for key, value in values:
        if value is not None:
            metric.add_metric([key], value)
    return metric


def run_metrics(
    host: RunHost,
    overview: Overview,
    rows: tuple[DeviceRow, ...],
    evaluation: Evaluation | None,
    findings: Iterable[Finding],
    *,
    ready: bool,
) -> Iterator[Metric]:
    tally, relay = host.hub.tally, host.relay
    yield InfoMetricFamily(
        "edgeflock_run", "The run.", value={"run": host.terms.run, "model": host.config.model.module}
    )
    for name, text, count in (
        ("updates", "Updates that were accepted since the run began.", overview.version),
        ("compressed_updates", "Those since the server started that held a selection.", tally.compressed),
        ("samples", "Samples that the updates since the server started were computed from.", tally.samples),
        ("ingress_bytes", "Bytes received on all sockets since the run began.", overview.ingress),
        ("egress_bytes", "Bytes sent on all sockets since the run began.", overview.egress),
        ("base_egress_bytes", "Bytes sent of a frozen base since the server started.", host.traffic.base),
        ("dense_bytes", "What the updates would have cost as dense float32.", overview.dense_bytes),
        ("shared_samples", "Samples that devices shared since the server started.", relay.samples),
        ("unshared_samples", "Copies of them that reached no device.", relay.dropped),
        ("duplicates", "Updates since then of tasks that another device had computed.", tally.duplicates),
        ("paced_seconds", "Seconds that devices were held back for their share.", host.rate_limiters.total),
        ("events", "Events since the server started.", host.hub.events.count),
    ):
        yield Counter(f"edgeflock_{name}", text, value=count)
    yield _family(
        Counter,
        "refusals",
        "What was refused since the server started, by code.",
        "code",
        ((code, tally.refusals[code]) for code in REFUSALS),  # all codes: a rate needs an earlier value
    )
    if (guard := host.engine.guard) is not None:
        yield _family(
            Counter,
            "defence_updates",
            "Updates of the run that counted in part (clipped) or not at all (dropped).",
            "decision",
            ((decision, guard.counts[decision]) for decision in ("clipped", "dropped")),
        )
    for name, text, counts in (
        ("ingress", "Bytes of records from devices since the server started.", host.traffic.received),
        ("egress", "Bytes of records to devices since the server started.", host.traffic.sent),
    ):
        octets = ((kind.__name__, count) for kind, count in counts.items())
        yield _family(Counter, f"record_{name}_bytes", text, "record", octets)
    if not host.engine.parameters.store.is_local:
        yield from shard_metrics(host)
    buckets, counted = [], 0
    for number, count in enumerate(overview.staleness):
        counted += count
        edge = "+Inf" if number == BINS - 1 else str(float(2**number - 1))
        buckets.append((edge, counted))
    yield HistogramMetricFamily(
        "edgeflock_staleness",
        "Versions between an update's base and its application, since the server started.",
        buckets=buckets,
        sum_value=tally.staleness_sum,
    )
    states = ((state, sum(row.state == state for row in rows)) for state in STATES)
    yield _family(Gauge, "devices", "Devices of the run.", "state", states)
    left = ((reason, sum((row.why_left or "").startswith(reason) for row in rows)) for reason in LEFT)
    yield _family(Gauge, "left", "Devices that are away, by why they left.", "why", left)
    spent = overview.privacy
    for name, text, value in (
        ("privacy_epsilon", "Epsilon so far, with differential privacy.", spent and spent.epsilon),
        ("privacy_delta", "Its delta.", spent and spent.delta),
        ("privacy_budget", "The epsilon at which the run ends; 0: never.", spent and spent.budget),
        ("updates_target", "Updates after which the run is complete; 0: never.", host.config.end.updates),
        ("parameters", "Parameters of the model.", host.layout.parameters.size),
        ("learning_rate", "The learning rate.", host.published.learning_rate),
        ("training_loss", "Loss of the recent updates' batches, averaged.", overview.loss),
        ("evaluation_loss", "Loss on held-out data.", evaluation and evaluation.loss),
        (
            "evaluation_accuracy_ratio",
            "Accuracy on held-out data, 0 to 1.",
            evaluation and evaluation.accuracy,
        ),
        ("evaluation_version", "The version that was evaluated last.", evaluation and evaluation.version),
        ("evaluation_timestamp_seconds", "When it was.", evaluation and evaluation.time),
        ("evaluation_failed", "1 if the last evaluation failed.", overview.evaluation_failed),
        ("diverged", "1 if the model's loss is no finite number.", overview.state == "diverged"),
        ("finished", "1 if the run is complete.", overview.state == "finished"),
        ("watchers", "Monitors that follow the run.", host.hub.watchers),
        ("ready", "1 if updates can be taken.", ready),
        ("version", "The model's version.", host.published.version),
        ("leads", "1 where the run is hosted, 0 where a server stands by.", 1),
    ):
        if value is not None:
            yield Gauge(f"edgeflock_{name}", text, value=value)
    yield finding_metric(findings)
    scores = evaluation.metrics if evaluation else {}
    yield _family(Gauge, "evaluation_metric", "Of model.metrics, by name.", "name", scores.items())
    classes = evaluation.classes if evaluation and len(evaluation.classes) <= _CLASS_LIMIT else ()
    recalls = ((str(n), right / total if total else None) for n, (right, total) in enumerate(classes))
    text = "Of the held-out data of a class, 0 to 1."
    yield _family(Gauge, "class_accuracy_ratio", text, "class", recalls)


def shard_metrics(host: RunHost) -> Iterator[Metric]:
    """A series for each model shard; none while the shards are restored."""
    parameters = host.engine.parameters
    shards = parameters.store.vectors.shard_statuses
    sizes = ((str(n), shard.nbytes) for n, shard in enumerate(shards))
    yield _family(Gauge, "shard_bytes", "What a shard keeps of the model.", "shard", sizes)
    yield Counter(
        "edgeflock_shards_restored",
        "How often shards were made again from the journal since the server started.",
        value=parameters.store.restorations,
    )


def gateway_metrics(lines: Iterable[GatewayConnection]) -> Iterator[Metric]:
    """Series for each connected gateway."""
    for family, name, text, value in _GATEWAY_METRICS:
        values = ((line.name, value(line)) for line in lines)
        yield _family(family, f"gateway_{name}", text, "gateway", values)


_GATEWAY_METRICS: tuple[tuple[Family, str, str, Callable[[GatewayConnection], float]], ...] = (
    (Gauge, "devices", "Connected through it.", attrgetter("devices")),
    (Counter, "updates", "Accepted since its line began.", attrgetter("updates")),
    (Counter, "ingress_bytes", "Received on its line.", attrgetter("meter.ingress")),
    (Counter, "egress_bytes", "Sent on its line.", attrgetter("meter.egress")),
    (Gauge, "waiting_bytes", "That it has not taken yet.", attrgetter("waiting")),
)


def finding_metric(findings: Iterable[Finding]) -> Metric:
    """A series for each finding. A finding of the run has an empty device."""
    family = Gauge("edgeflock_finding", "1 while it is so.", labels=["kind", "device", "severity"])
    for finding in findings:
        family.add_metric([finding.kind, finding.device or "", finding.severity], 1)
    return family


def device_metrics(rows: tuple[DeviceRow, ...]) -> Iterator[Metric]:
    """Series for each device of `rows`, with the values that are known."""
    for family, name, text, value in _DEVICE_METRICS:
        yield _family(family, f"device_{name}", text, "device", ((row.name, value(row)) for row in rows))
    labels = Gauge(
        "edgeflock_device_label", "1 for each label of a device, NAME=VALUE.", labels=["device", "label"]
    )
    for row in rows:
        for label in (row.labels or "").split():
            labels.add_metric([row.name, label], 1)
    yield labels


Value = Callable[[DeviceRow], float | None]


def _scaled(column: str, factor: float) -> Value:
    def value(row: DeviceRow) -> float | None:
        number: float | None = getattr(row, column)
        return None if number is None else number * factor

    return value


def _retired(row: DeviceRow) -> float:
    return float(row.why_left is not None and row.why_left.startswith(("finished", "retired")))


_DEVICE_METRICS: tuple[tuple[Family, str, str, Value], ...] = (
    (Counter, "updates", "Accepted since the run began.", attrgetter("updates")),
    (Counter, "refused", "Updates refused since the server started.", attrgetter("refused")),
    (Counter, "samples", "That its updates were computed from.", attrgetter("samples")),
    (Counter, "ingress_bytes", "Received from it.", attrgetter("ingress")),
    (Counter, "egress_bytes", "Sent to it.", attrgetter("egress")),
    (Counter, "dropped_samples", "That its buffer had no room for.", attrgetter("drops")),
    (Counter, "quarantined_samples", "Not fit for training.", attrgetter("quarantined")),
    (Counter, "duplicate_samples", "That had come before.", attrgetter("duplicates")),
    (Gauge, "training", "1 if it is: there, not idle, not paused.", lambda row: row.state == "training"),
    (Gauge, "paused", "1 if it is paused or dropped.", lambda row: row.state == "paused"),
    (Gauge, "retired", "1 if it left because it was done or its owner wanted it.", _retired),
    (Gauge, "staleness", "Of its last update, in versions.", attrgetter("staleness")),
    (Gauge, "loss", "Of its last batch.", attrgetter("loss")),
    (Gauge, "batch_samples", "In its last update.", attrgetter("batch")),
    (Gauge, "stream_rate", "Samples a second that arrive at it.", attrgetter("rate")),
    (
        Gauge,
        "stream_accuracy_ratio",
        "Of its last samples, those that the model had right before it trained on them, 0 to 1.",
        attrgetter("stream_accuracy"),
    ),
    (Gauge, "stream_loss", "On them.", attrgetter("stream_loss")),
    (Gauge, "buffer_samples", "That wait in its buffer.", attrgetter("depth")),
    (Gauge, "last_seen_timestamp_seconds", "When it last sent.", attrgetter("last_seen")),
    (Gauge, "cpu_ratio", "Load of all its cores, 0 to 1.", _scaled("cpu", 0.01)),
    (Gauge, "memory_used_bytes", "Of its memory.", _scaled("ram", 1 << 20)),
    (Gauge, "memory_bytes", "That it has.", _scaled("memory", 1 << 20)),
    (
        Counter,
        "clipped_updates",
        "Since the server started: those of which the defence let a part count.",
        attrgetter("clipped"),
    ),
    (Counter, "dropped_updates", "Of which nothing counted.", attrgetter("dropped")),
    (
        Gauge,
        "standing",
        "How its updates agree with the server's own gradient, -1 to 1.",
        attrgetter("standing"),
    ),
    (Gauge, "temperature_celsius", "Of its hottest processor.", attrgetter("temperature")),
    (Gauge, "battery_ratio", "Charge, 0 to 1.", _scaled("battery", 0.01)),
    (Gauge, "undervoltage", "1 if its supply is too weak.", attrgetter("undervoltage")),
)
