"""GET /metrics, /livez and /readyz: what a Prometheus and an orchestrator see of a server."""

import asyncio
import json
import re
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from edgeflock.shared.errors import Refused
from edgeflock.shared.protocol.frames import Evaluation
from tests.hosting import LAYOUT, hosting
from tests.integration.operator import operating
from tests.integration.test_failing_disk import GaveUp, impatient
from tests.integration.test_reconnect import link, update

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"

HEALTH = {"cpu": 50.0, "ram": 2, "temperature": 61.5, "battery": 80, "undervoltage": 0}
STREAM = {"rate": 12.5, "depth": 3, "drops": 4, "quarantined": 5, "duplicates": 6}
STREAM |= {"stream_accuracy": 0.75, "stream_loss": 0.5}

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(text: str) -> Samples:
    """(name, labels) -> value, of a valid exposition."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_what_happened_in_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeflock.server.roster.statistics._MIN_SILENCE", 3600.0)  # nobody is idle yet
    async with hosting(tmp_path, "end.updates=9", closed=True, viewer_token="look") as hosted:
        async with (
            operating(hosted.port, "look") as viewer,
            link(hosted.port, 'p"i\n', hosted.enrol('p"i\n')) as device,
        ):
            await device.join()
            await device.push(replace(update(1, 0), facts={**HEALTH, **STREAM}))
            await device.push(update(2, 0))
            with pytest.raises(Refused):
                await device.push(update(3, 77))
            status, text = await viewer.get("/metrics")
            assert status == 200
            found = read(text)
            ingress, egress = hosted.registry.devices['p"i\n'].connection.traffic
    own = (("device", 'p"i\n'),)
    for (name, labels), value in {
        ("edgeflock_updates_total", ()): 2,
        ("edgeflock_samples_total", ()): 20,
        ("edgeflock_dense_bytes_total", ()): 2 * 4 * LAYOUT.size,
        ("edgeflock_updates_target", ()): 9,
        ("edgeflock_refusals_total", (("code", "base-in-future"),)): 1,
        ("edgeflock_staleness_bucket", (("le", "0.0"),)): 1,
        ("edgeflock_staleness_bucket", (("le", "1.0"),)): 2,
        ("edgeflock_staleness_bucket", (("le", "+Inf"),)): 2,
        ("edgeflock_staleness_count", ()): 2,
        ("edgeflock_staleness_sum", ()): 1,
        ("edgeflock_devices", (("state", "training"),)): 1,
        ("edgeflock_ready", ()): 1,
        ("edgeflock_device_updates_total", own): 2,
        ("edgeflock_device_refused_total", own): 1,
        ("edgeflock_device_ingress_bytes_total", own): ingress,
        ("edgeflock_device_egress_bytes_total", own): egress,
        ("edgeflock_device_staleness", own): 1,
        ("edgeflock_device_cpu_ratio", own): 0.5,
        ("edgeflock_device_memory_used_bytes", own): 2 << 20,
        ("edgeflock_device_temperature_celsius", own): 61.5,
        ("edgeflock_device_undervoltage", own): 0,
        ("edgeflock_device_buffer_samples", own): 3,
        ("edgeflock_device_dropped_samples_total", own): 4,
        ("edgeflock_device_quarantined_samples_total", own): 5,
        ("edgeflock_device_duplicate_samples_total", own): 6,
        ("edgeflock_device_stream_accuracy_ratio", own): 0.75,
        ("edgeflock_device_stream_loss", own): 0.5,
    }.items():
        assert found[name, labels] == value, (name, labels)
    assert found["edgeflock_ingress_bytes_total", ()] > ingress


async def test_as_many_devices_as_the_limit_says_have_series(tmp_path: Path) -> None:
    async with hosting(tmp_path, "limits.device_series=2") as hosted, operating(hosted.port, "") as viewer:
        for name in ("a", "b", "c"):
            async with link(hosted.port, name) as device:
                await device.join()
        while any(device.connection.is_connected for device in hosted.registry.devices.values()):
            await asyncio.sleep(0.01)
        found = read((await viewer.get("/metrics"))[1])
    series = {labels[0][1] for name, labels in found if name == "edgeflock_device_updates_total"}
    assert series == {"a", "b"}
    assert found["edgeflock_devices", (("state", "away"),)] == 3


async def test_the_dashboard_shows_nothing_that_is_not_there(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted:
        hosted.engine.steering.record(Evaluation(0, 1e9, 2.3, 0.1, 0, 0), [])
    async with hosting(tmp_path) as hosted, operating(hosted.port, "") as viewer:
        async with link(hosted.port) as device:
            await device.join()
            await device.push(replace(update(1, 0), facts={**HEALTH, **STREAM}))
            with pytest.raises(Refused):
                await device.push(update(2, 77))
        hosted.hub.tally.loss = 0.5
        families = {
            family.name: family
            for family in text_string_to_metric_families((await viewer.get("/metrics"))[1])
        }
    there = {sample.name for family in families.values() for sample in family.samples}
    # These come with an evaluation, which a server without a model has none of,
    there |= {"edgeflock_evaluation_loss", "edgeflock_evaluation_accuracy_ratio"}
    # and this one with what is wrong.
    assert "edgeflock_finding" in families
    there |= {"edgeflock_finding"}
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries = [variable["query"] for variable in dashboard["templating"]["list"]]
    used = {
        name for text in [*expressions, *queries] for name in re.findall(r"(?:edgeflock|process)_\w+", text)
    }
    assert len(used) > 20
    assert used <= there


async def test_a_server_that_cannot_write_its_journal_lives_but_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = hosting(tmp_path, closed=True, viewer_token="look")
    async with run as hosted, operating(hosted.port, "") as anybody:
        assert await anybody.get("/livez") == (200, "ok\n")
        assert await anybody.get("/readyz") == (200, "ok\n")

        def full() -> None:
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(hosted.journal, "commit", full)
        async with impatient(hosted.port, "pi", hosted.enrol("pi")) as device:
            with pytest.raises(GaveUp):
                await device.join()
        status, text = await anybody.get("/readyz")
        assert status == 503
        assert "cannot write its journal" in text
        assert await anybody.get("/livez") == (200, "ok\n")
        async with operating(hosted.port, "look") as viewer:
            assert read((await viewer.get("/metrics"))[1])["edgeflock_ready", ()] == 0
