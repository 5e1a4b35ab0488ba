"""What is wrong, wherever it is told; and why devices left."""

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgeflock.server.monitoring.listeners import Callbacks, Listeners
from edgeflock.server.training_graph.served import GraphStore
from edgeflock.shared.protocol.frames import Evaluation, Finding, Snapshot
from edgeflock.shared.protocol.messages import Facts
from tests.hosting import Hosted, hosting
from tests.integration.foreign_client import connected, joined
from tests.integration.operator import ADMIN, operating
from tests.integration.scene import hello, refused
from tests.integration.test_reconnect import link, update


def events(hosted: Hosted, kind: str) -> list[str]:
    return [f"{one.device}: {one.text}" for one in hosted.hub.events.list_from(0)[0] if one.kind == kind]


def kinds(hosted: Hosted) -> list[str]:
    return [one.kind for one in hosted.health.findings]


async def check_later(hosted: Hosted, seconds: float) -> None:
    """Check as so many seconds from now."""
    later = SimpleNamespace(time=lambda: time.time() + seconds, monotonic=time.monotonic)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edgeflock.server.monitoring.health.time", later)
        await hosted.health.check()


async def lasting(hosted: Hosted) -> None:
    """Look, and again as if what is so now had been so for a while."""
    await hosted.health.check()
    await check_later(hosted, 20.0)


async def test_a_finding_is_told_everywhere_and_is_over_once(tmp_path: Path) -> None:
    hot: Facts = {"temperature": 82.5, "throttled": 1, "clock": int(time.time()) - 3600}
    async with hosting(tmp_path) as hosted, operating(hosted.port, "") as viewer, link(hosted.port) as device:
        await device.join()
        await device.push(replace(update(1, 0), facts=hot))
        await hosted.health.check()
        await hosted.health.check()
        assert [(one.kind, one.device) for one in hosted.health.findings] == [
            ("hot", "pi"), ("throttled", "pi"), ("clock", "pi"),
        ]  # fmt: skip
        async with viewer.feed() as frames:
            snapshot = await frames.next()
        assert isinstance(snapshot, Snapshot)
        assert snapshot.overview.findings == hosted.health.findings
        assert snapshot.overview.began is not None
        _, text = await viewer.get("/v1/status")
        first = json.loads(text)["findings"][0]
        assert (first["kind"], first["severity"], first["device"]) == ("hot", "warning", "pi")
        assert first["text"] == "its processor is at 82 degrees Celsius"
        _, text = await viewer.get("/metrics")
        assert 'edgeflock_finding{device="pi",kind="hot",severity="warning"} 1.0' in text
        assert len(events(hosted, "finding")) == 3
        assert "pi: hot: its processor is at 82 degrees Celsius; cool it, or pause it" in events(
            hosted, "finding"
        )
        well: Facts = {"temperature": 60.0, "throttled": 0, "clock": int(time.time())}
        await device.push(replace(update(2, 1), facts=well))
        await hosted.health.check()
        assert kinds(hosted) == ["hot", "throttled", "clock"], "it may be hot again in a moment"
        await check_later(hosted, 61.0)
        assert kinds(hosted) == ["unevaluated"]
        assert sorted(events(hosted, "over")) == [
            f"pi: {kind} has ended" for kind in ("clock", "hot", "throttled")
        ]
        assert 'edgeflock_finding{device="pi"' not in (await viewer.get("/metrics"))[1]


async def test_who_waits_for_the_server_s_export_is_not_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    since = [5.0]
    monkeypatch.setattr(GraphStore, "wait_end", lambda self, now: now - since[0])
    async with hosting(tmp_path) as hosted, link(hosted.port) as device:
        await device.join()
        hosted.registry.devices["pi"].connection.last_heard -= 100
        await hosted.health.check()
        assert kinds(hosted) == []
        since[0] = 50.0
        await hosted.health.check()
        assert kinds(hosted) == ["silent"]


async def test_a_device_with_wrong_labels_makes_no_run_overfit(tmp_path: Path) -> None:
    """Its loss falls while the test loss rises, which is its doing; that of the others stays as it was."""
    async with (
        hosting(tmp_path) as hosted,
        link(hosted.port, "a") as a,
        link(hosted.port, "b") as b,
        link(hosted.port, "wrong") as wrong,
    ):
        for device in (a, b, wrong):
            await device.join()
        version = 0
        for step in range(30):
            for device, loss in ((a, 0.3), (b, 0.3), (wrong, 4.0 / (step + 1))):
                await device.push(replace(update(step + 1, version), loss=loss))
                version += 1
            risen = 0.1 * max(1, step - 5)
            hosted.health._evaluator.history.append(Evaluation(version, time.time(), risen, None, 0, 0))
            await hosted.health.check()
        await lasting(hosted)
        assert "overfitting" not in kinds(hosted)


async def test_a_pause_of_the_server_is_no_silence_of_its_devices(tmp_path: Path) -> None:
    """A process that was stopped has read nothing of what they sent."""
    async with hosting(tmp_path) as hosted, link(hosted.port) as device:
        await device.join()
        await device.push(update(1, 0))
        hosted.registry.devices["pi"].connection.last_heard -= 100
        hosted.health.note_pause(time.monotonic() - 90)
        await hosted.health.check()
        assert kinds(hosted) == []
        hosted.health.note_pause(time.monotonic())
        hosted.health._listening_since -= 60
        await hosted.health.check()
        assert kinds(hosted) == ["silent"], "a minute later it is one"


async def test_who_has_sent_an_update_has_its_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_MIN_SILENCE", "_UNKNOWN_INTERVAL"):
        monkeypatch.setattr(f"edgeflock.server.roster.statistics.{name}", 0.0)
    monkeypatch.setattr("edgeflock.server.findings.devices._SILENT_SECONDS", 1e-9)
    monkeypatch.setattr(GraphStore, "wait_end", lambda self, now: now)
    async with hosting(tmp_path) as hosted, link(hosted.port) as device:
        await device.join()
        await hosted.health.check()
        assert kinds(hosted) == []
        await device.push(update(1, 0))
        await hosted.health.check()
        assert kinds(hosted) == ["silent"]


async def test_samples_that_are_lost_are_told_while_they_are(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, link(hosted.port) as device:
        await device.join()
        # 5 may be of long ago, and who begins at 0 again is a new process.
        for sequence, (drops, said) in enumerate(
            [(5, []), (12, ["7 recent samples, 12 in all"]), (0, [])], 1
        ):
            await device.push(replace(update(sequence, sequence - 1), facts={"drops": drops}))
            await lasting(hosted)
            await check_later(hosted, 100.0)
            found = [one.text for one in hosted.health.findings if one.kind == "dropping"]
            assert found == [f"its buffer had no room for {rest}" for rest in said]


async def test_a_full_disk_of_a_device_is_told_as_such(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, link(hosted.port) as device:
        await device.join()
        reported: list[Facts] = [{"drops": 5}, {"drops": 905, "unwritten": 900}]
        for sequence, facts in enumerate(reported, 1):
            await device.push(replace(update(sequence, sequence - 1), facts=facts))
            await lasting(hosted)
        (one,) = hosted.health.findings
        assert (one.kind, one.device) == ("disk", "pi")
        assert one.text == "its disk is full: 900 recent samples were dropped instead of stored"
        await device.push(replace(update(3, 2), facts={"drops": 905, "unwritten": 900}))
        await check_later(hosted, 200.0)
        await check_later(hosted, 300.0)
        assert "disk" not in kinds(hosted), "there is room again"


async def test_a_device_that_comes_and_goes_is_named(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, link(hosted.port, "well") as well:
        await well.join()
        for _ in range(4):
            await lasting(hosted)
            assert "flapping" not in kinds(hosted)
            async with link(hosted.port, "weak") as device:
                await device.join()
                await device.leave("error: ValueError")
            while hosted.registry.devices["weak"].connection.is_connected:
                await asyncio.sleep(0.01)
        await hosted.health.check()
        assert [(one.kind, one.device) for one in hosted.health.findings] == [("flapping", "weak")]


async def test_a_run_that_nobody_evaluates_says_so(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted:
        await hosted.health.check()
        assert kinds(hosted) == []
        await check_later(hosted, 31.0)
        (one,) = hosted.health.findings
        assert (one.kind, one.severity, one.device) == ("unevaluated", "notice", None)
        assert "cannot measure how good the model is" in one.text


async def test_every_way_to_leave_is_told_apart(tmp_path: Path) -> None:
    async with (
        hosting(tmp_path, closed=True, admin_token=ADMIN) as hosted,
        operating(hosted.port) as admin,
    ):
        whys: dict[str, str] = {}

        async def left(name: str) -> None:
            connection = hosted.registry.devices[name].connection
            while connection.leave_reason is None:
                await asyncio.sleep(0.01)
            whys[name] = connection.leave_reason

        for name in ("done", "owner", "cut", "dropped"):
            identity = hosted.enrol(name)
            async with link(hosted.port, name, identity) as device:
                await device.join()
                assert hosted.registry.devices[name].connection.leave_reason is None
                if name == "dropped":
                    await admin.post("/v1/devices/dropped/drop")
                    await left(name)
                elif name == "cut":
                    line = device._dialer.session
                    assert line is not None
                    line._socket._response.connection.transport.abort()  # type: ignore[union-attr]
                    await left(name)
                else:
                    await device.leave("finished: its part is done" if name == "done" else "")
            await left(name)
        assert whys == {
            "done": "finished: its part is done",
            "owner": "retired",
            "cut": "killed: the connection broke",
            "dropped": "refused: dropped",
        }
        _, text = await admin.get("/metrics")
        for why in ("finished", "retired", "killed", "refused"):
            assert f'edgeflock_left{{why="{why}"}} 1.0' in text
        assert 'edgeflock_left{why="timed out"} 0.0' in text
        assert 'edgeflock_device_retired{device="owner"} 1.0' in text
        assert 'edgeflock_device_retired{device="cut"} 0.0' in text


async def test_a_program_is_told_of_what_begins() -> None:
    heard: list[Finding] = []

    async def end(why: str) -> None:
        raise AssertionError(why)

    listeners = Listeners(Callbacks(on_finding=heard.append), lambda: (), end)
    finding = Finding("hot", "warning", "pi", 1.0, "it is hot", "give it air")
    listeners.on_finding(finding)
    listeners.call_queued()
    assert heard == [finding]


async def test_a_device_of_another_protocol_is_named_until_it_joins(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted:
        async with connected(hosted.port) as device:
            await device.upgrade()
            device.send(hello(protocol=1, device="pi-7"))
            await refused(device, "protocol-version")
        await hosted.health.check()
        (one,) = [one for one in hosted.health.findings if one.kind == "outdated"]
        assert (one.device, one.text) == ("pi-7", "it cannot join: the server speaks protocol 2, not 1")
        async with joined(hosted.port, "pi-7"):
            assert hosted.registry.outdated == ()


async def test_labels_are_of_the_owner_and_of_operators_who_come_first(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted:
        identity = hosted.enrol("pi")
        hosted.register.label("pi", {"site": "roof"})
        async with link(hosted.port, "pi", identity) as device:
            await device.introduce({"label.site": "cellar", "label.floor": "2", "label.level": 3})
            await device.join()
            assert dict(hosted.registry.devices["pi"].labels) == {"site": "roof", "floor": "2"}
