"""What an admin does to a run, over real sockets: pausing, dropping, the learning rate, checkpoints."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from edgeflock.server.defence import Trusted
from edgeflock.server.descent.regime import Regime
from edgeflock.server.engine.admission import admit
from edgeflock.server.journal.journal import Journal
from edgeflock.server.ledger.recovery import replay
from edgeflock.shared.errors import Dropped
from edgeflock.shared.protocol.messages import Receipt
from edgeflock.shared.settings.config import ADAFACTOR_RATE
from tests.hosting import LAYOUT, Hosted, hosting
from tests.integration.foreign_client import PING, PONG, PULL, joined
from tests.integration.operator import ADMIN, operating
from tests.integration.test_reconnect import link, update
from tests.integration.test_rounds import PATIENT, gathered
from tests.integration.test_rounds import link as rounds_link
from tests.integration.test_rounds import update as rounds_update
from tests.server.agreements import acquaint
from tests.server.pushes import copy_as_killed


async def reached(hosted: Hosted, version: int) -> None:
    while hosted.engine.published.version < version:
        await asyncio.sleep(0.005)


async def test_a_paused_device_waits_for_its_answer_and_gets_a_fresh_model(tmp_path: Path) -> None:
    async with hosting(tmp_path, admin_token=ADMIN) as hosted, operating(hosted.port) as admin:
        async with link(hosted.port, "slow") as slow, link(hosted.port, "other") as other:
            await slow.join()
            await other.join()
            status, answer = await admin.post("/v1/devices/slow/pause", {"because": "too hot"})
            assert (status, answer["paused"], answer["because"]) == (200, True, "too hot")
            waiting = asyncio.create_task(slow.push(update(1, 0, pull=True)))
            await reached(hosted, 1)  # what it had computed counts
            await other.push(update(1, 1))
            await other.push(update(2, 2))
            assert not waiting.done()
            assert hosted.registry.devices["slow"].statistics.updates == 1
            assert (await admin.post("/v1/devices/slow/resume"))[0] == 200
            receipt = await waiting
            assert receipt.model is not None
            assert (receipt.version, receipt.model.version) == (1, 3)
            assert slow.connections == 1


async def test_a_paused_device_is_there_answered_pings_and_noticed_leaving(tmp_path: Path) -> None:
    async with hosting(tmp_path, admin_token=ADMIN) as hosted, operating(hosted.port) as admin:
        async with joined(hosted.port, "pi") as (device, _):
            await admin.post("/v1/devices/pi/pause")
            device.send(b"\x92\x03\xc0")  # a Pull
            device.send(b"are you there?", PING)
            assert await device.receive() == (PONG, b"are you there?")
            await admin.post("/v1/devices/pi/pause", {"because": "another reason"})  # waits on
            device.send(b"still?", PING)
            assert await device.receive() == (PONG, b"still?")
            await admin.post("/v1/devices/pi/resume")
            assert (await device.answer())[:2] == [PULL + 1, 0]
            await admin.post("/v1/devices/pi/pause")
            device.send(b"\x92\x03\xc0")
        while hosted.registry.devices["pi"].connection.session is not None:
            await asyncio.sleep(0.005)
        async with joined(hosted.port, "pi") as (device, welcome):
            device.send(b"\x92\x03\xc0")
            device.send(b"", PING)
            assert (await device.receive())[0] == PONG, "paused still"


async def test_a_round_does_not_wait_for_a_paused_device(tmp_path: Path) -> None:
    async with hosting(tmp_path, *PATIENT, admin_token=ADMIN) as hosted, operating(hosted.port) as admin:
        async with rounds_link(hosted.port, "a") as a, rounds_link(hosted.port, "b") as b:
            await a.join()
            await b.join()
            first = asyncio.create_task(a.push(rounds_update(0)))
            await gathered(hosted, 1)
            await admin.post("/v1/devices/b/pause")
            receipt: Receipt = await first
            assert receipt.version == 1
            assert (await a.push(rounds_update(1, 2))).version == 2
        rounds = [event.text for event in hosted.hub.events.list_from(0)[0] if event.kind == "round"]
        assert rounds == ["1 update made version 1", "1 update made version 2"]


async def test_a_dropped_device_goes_and_stays_away_until_it_is_resumed(tmp_path: Path) -> None:
    async with hosting(tmp_path, admin_token=ADMIN) as hosted, operating(hosted.port) as admin:
        async with link(hosted.port, "pi/4 {%}") as device, link(hosted.port, "other") as other:
            await device.join()
            await other.join()
            path = "/v1/devices/pi%2F4%20%7B%25%7D"
            status, answer = await admin.post(f"{path}/drop", {"because": "stolen"})
            assert (status, answer["dropped"]) == (200, True)
            status, answer = await admin.post(f"{path}/pause")
            assert (status, answer["code"]) == (409, "dropped"), "a pause would let it come back"
            assert "resume it before you pause it" in answer["detail"]
            with pytest.raises(Dropped, match="dropped 'pi/4 {%}': stolen"):
                await device.push(update(1, 0))
            with pytest.raises(Dropped, match="stolen"):
                await device.join()
            await admin.post(f"{path}/drop")
            with pytest.raises(Dropped, match=r"dropped 'pi/4 {%}'; it may come back once one resumes it$"):
                await device.join()
            await other.push(update(1, 0))
            await admin.post(f"{path}/resume")
            assert (await device.join()).version == 1
            await device.push(update(1, 1))
        assert hosted.hub.tally.refusals["dropped"] == 2


async def test_what_an_operator_wants_of_devices_outlasts_the_server(tmp_path: Path) -> None:
    async with hosting(tmp_path, admin_token=ADMIN) as hosted, operating(hosted.port) as admin:
        for name in ("paused", "dropped", "resumed", "other"):
            async with link(hosted.port, name) as device:
                await device.join()
                await device.push(update(1, 0))
        await admin.post("/v1/devices/paused/pause", {"because": "too hot"})
        await admin.post("/v1/devices/dropped/drop", {"because": "stolen"})
        await admin.post("/v1/devices/resumed/pause")
        await admin.post("/v1/devices/resumed/resume")
    async with hosting(tmp_path, admin_token=ADMIN) as hosted, operating(hosted.port) as admin:
        orders = {name: one.connection.order for name, one in hosted.registry.devices.items()}
        assert {name: order and order.reason for name, order in orders.items()} == {
            "paused": "too hot", "dropped": "stolen", "resumed": None, "other": None,
        }  # fmt: skip
        async with link(hosted.port, "paused") as paused, link(hosted.port, "dropped") as dropped:
            with pytest.raises(Dropped, match="stolen"):
                await dropped.join()
            await paused.join()
            waiting = asyncio.create_task(paused.push(update(2, 4)))
            await reached(hosted, 5)
            assert not waiting.done()
            await admin.post("/v1/devices/paused/resume")
            await waiting
            await admin.post("/v1/devices/dropped/resume")
            await dropped.join()
    async with hosting(tmp_path) as hosted:
        assert all(one.connection.order is None for one in hosted.registry.devices.values())


async def test_the_learning_rate_changes_durably_and_replays_bit_for_bit(tmp_path: Path) -> None:
    async with hosting(tmp_path, admin_token=ADMIN) as hosted, operating(hosted.port) as admin:
        async with link(hosted.port) as device:
            await device.join()
            for sequence in range(1, 4):
                await device.push(update(sequence, sequence - 1))
            before = hosted.engine.theta()[1]
            assert await admin.post("/v1/learning_rate", {"value": 0.03125}) == (
                200,
                {"learning_rate": 0.03125, "version": 3},
            )
            assert (hosted.engine.theta()[1] == before).all()
            for sequence in range(4, 8):
                await device.push(update(sequence, sequence - 2))
            version, theta = hosted.engine.theta()
            killed = copy_as_killed(tmp_path, tmp_path / "killed")
            status, text = await admin.get("/v1/status")
            assert (status, '"learning_rate": 0.03125' in text) == (200, True)
    journal = Journal(killed / "journal.sqlite")
    assert [start.regime.learning_rate for start in journal.regimes()] == [ADAFACTOR_RATE, 0.03125]
    replayed = replay(journal, LAYOUT)
    journal.close()
    assert (replayed.version, replayed.theta.tobytes()) == (version, theta.tobytes())
    async with hosting(killed) as again:  # with the same settings, it goes on as it was
        assert again.engine.theta()[1].tobytes() == theta.tobytes()
        assert again.engine.parameters.regime == Regime("adacomp", 0.03125, 256)
    async with hosting(killed, "coordination.learning_rate=0.5") as again:  # other settings hold
        assert again.engine.parameters.regime.learning_rate == 0.5
    async with hosting(killed) as again:  # and what was chosen before them is forgotten
        assert again.engine.parameters.regime.learning_rate == ADAFACTOR_RATE


async def test_a_checkpoint_leaves_nothing_to_replay(tmp_path: Path) -> None:
    async with hosting(tmp_path, admin_token=ADMIN) as hosted, operating(hosted.port) as admin:
        async with link(hosted.port) as device:
            await device.join()
            await device.push(update(1, 0))
            assert await admin.post("/v1/checkpoint") == (200, {"version": 1})
            killed = copy_as_killed(tmp_path, tmp_path / "killed")
            theta = hosted.engine.theta()[1]
    snapshot = Journal(killed / "journal.sqlite").snapshot()
    assert (snapshot.version, snapshot.theta.tobytes()) == (1, theta.tobytes())


async def test_every_action_is_an_event_and_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with hosting(tmp_path, admin_token=ADMIN) as hosted, operating(hosted.port) as admin:
        async with link(hosted.port) as device:
            await device.join()
            await admin.post("/v1/devices/pi/pause", {"because": "hot\x1b[2J"})
            await admin.post("/v1/devices/pi/drop")
            await admin.post("/v1/devices/pi/resume")
            await admin.post("/v1/learning_rate", {"value": 1})
            await admin.post("/v1/checkpoint")
        events, missed = hosted.hub.events.list_from(0)
    reported = [(event.kind, event.device, event.text) for event in events]
    assert missed == 0
    for action in (
        ("paused", "pi", "by an admin: hot?[2J"),
        ("dropped", "pi", "by an admin"),
        ("resumed", "pi", "by an admin"),
        ("config", None, f"learning rate {ADAFACTOR_RATE:g} -> 1 from version 0 on, by an admin"),
        ("checkpoint", None, "version 0, by an admin"),
    ):
        assert action in reported
        assert any(action[0] in record.message for record in caplog.records)


async def test_what_cannot_be_done_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with hosting(tmp_path, admin_token=ADMIN) as hosted, operating(hosted.port) as admin:
        async with link(hosted.port) as device:
            await device.join()
            for path, body, octets, status in (
                ("/v1/devices/nobody/pause", {}, None, 404),
                ("/v1/devices/pi/pause", {"because": 7}, None, 400),
                ("/v1/devices/pi/pause", {"because": "x" * 201}, None, 400),
                ("/v1/devices/pi/pause", None, b"{", 400),
                ("/v1/devices/pi/pause", None, b"\xff", 400),
                ("/v1/devices/pi/pause", [1], None, 400),
                ("/v1/devices/pi/pause", {"reason": "x"}, None, 400),
                ("/v1/devices/pi/drop", {"because": "x", "reason": "x"}, None, 400),
                ("/v1/devices/pi/resume", {"reason": "x"}, None, 400),
                ("/v1/devices/pi/pardon", {"reason": "x"}, None, 400),
                ("/v1/devices/pi/resume", {"because": "x"}, None, 400),
                ("/v1/checkpoint", {"version": 1}, None, 400),
                ("/v1/rollback", {"version": 0, "ver": 1}, None, 400),
                ("/v1/learning_rate", {"value": 1, "rate": 1}, None, 400),
                ("/v1/learning_rate", None, b"", 400),
                ("/v1/learning_rate", None, b'{"value": 1e39}', 400),
                *(("/v1/learning_rate", None, f'{{"value": {value}}}'.encode(), 400)
                  for value in ("0", "-1", "NaN", "Infinity", "true", '"1"', "1" + "0" * 400,
                                "9" * 5000, "1e30", "1e-13")),
            ):  # fmt: skip
                found, answer = await admin.post(path, body, octets)
                assert (found, bool(answer["detail"])) == (status, True), (path, body, octets)
            _, answer = await admin.post("/v1/devices/pi/pause", {"reason": "x"})
            assert answer == {"code": "bad-request", "detail": "'reason' is unknown; known are because"}
            assert hosted.registry.devices["pi"].connection.order is None
            assert len(hosted.journal.regimes()) == 1


async def test_a_pardoned_device_begins_anew(tmp_path: Path) -> None:
    async with (
        hosting(tmp_path, "defence.mode=score", admin_token=ADMIN) as hosted,
        operating(hosted.port) as admin,
    ):
        guard = hosted.engine.guard
        assert guard is not None
        bad = admit(update(1, 0), LAYOUT, oldest=0, version=0, samples=1000, expansion_bytes=1 << 30)
        against = np.zeros((LAYOUT.parameters.size, 2), np.float32)
        against[bad.indices, 0] = -bad.delta / np.linalg.norm(bad.delta)
        guard.set_trusted(Trusted(0, against))
        acquaint(guard, 1000.0)
        async with link(hosted.port, "pi") as device:
            await device.join()
            await device.push(update(1, 0))
            (row,) = json.loads((await admin.get("/v1/status"))[1])["devices"]
            assert row["defence"] == {"clipped": 0, "dropped": 1, "standing": guard.records[1].standing}
            async with admin.feed() as frames:
                (seen,) = (await frames.next()).devices
            assert (seen.clipped, seen.dropped, seen.standing) == (0, 1, guard.records[1].standing)
            text = (await admin.get("/metrics"))[1]
            assert 'edgeflock_defence_updates_total{decision="dropped"} 1.0' in text
            assert 'edgeflock_device_dropped_updates_total{device="pi"} 1.0' in text
            for known in (True, False):
                answer = await admin.post("/v1/devices/pi/pardon")
                assert answer == (200, {"device": "pi", "pardoned": known})
            (row,) = json.loads((await admin.get("/v1/status"))[1])["devices"]
            assert row["defence"] == {"clipped": 0, "dropped": 0, "standing": None}
        warned = [
            (e.kind, e.device) for e in hosted.hub.events.list_from(0)[0] if e.kind in ("warning", "config")
        ]
        assert warned == [("warning", "pi"), ("config", "pi")]
