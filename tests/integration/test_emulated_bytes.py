"""What the emulation counts is what a socket carries: the same records, pushed to a real server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from edgeflock.client.backends.torch import TorchBackend
from edgeflock.client.data.batcher import Shuffled
from edgeflock.client.training.trainer import Trainer
from edgeflock.client.training.worker import Worker
from edgeflock.client.transport import Link
from edgeflock.devices.emulation.config import FleetFile
from edgeflock.devices.emulation.fleet import prepare
from edgeflock.server.connections.traffic import Traffic
from edgeflock.server.journal.journal import Journal
from edgeflock.shared.data import datasets
from edgeflock.shared.errors import Refused
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import (
    PROTOCOL,
    Hello,
    Model,
    Pull,
    Receipt,
    Record,
    Refusal,
    Stop,
    Update,
    Welcome,
)
from tests.devices.emulation.fleets import MIXED, ONE, Ran, fleet_of, run
from tests.hosting import Hosted, hosting
from tests.integration.held import LOSSY

DIGITS = "model.module=edgeflock.client.zoo:DigitsCNN"
"""38,282 parameters: 153 kB whole."""

OWN = "model.module=tests.devices.emulation.fleets:Pretrained"
"""The same with weights of its own, so that all pull it whole, whenever they come."""

NORMED = "model.module=tests.devices.emulation.fleets:Normed"
"""With running statistics."""

SHORT, MEDIUM, LONG = range(0, 126), range(126, 1 << 16), range(1 << 16, 1 << 26)
"""Lengths of a payload that RFC 6455 frames alike."""

CODINGS: dict[str, tuple[Sequence[str], range]] = {
    "whole, f32": (["compression.select=1", "compression.values=f32"], LONG),
    "whole, f16": (["compression.select=1", "compression.values=f16"], LONG),
    "whole, signs": (["compression.select=1", "compression.values=sign"], MEDIUM),
    "a third, raw indices": (
        ["compression.select=0.3", "compression.values=f16", "compression.indices=raw"],
        LONG,
    ),
    "a hundredth": (["compression.select=0.01"], MEDIUM),
    "a tenth, and running statistics": (["compression.select=0.1", NORMED], MEDIUM),
    "what is significant": (
        ["compression.select=0", "compression.selection=significance", "compression.significance=0.1"],
        MEDIUM,
    ),
    "significant signs": (
        [
            "compression.select=0",
            "compression.selection=significance",
            "compression.significance_decay=true",
            "compression.indices=grid",
            "compression.values=scale",
        ],
        MEDIUM,
    ),
    "lossy both ways": (["compression.select=0.01", LOSSY], MEDIUM),
    "lossy, and running statistics": (["compression.select=0.1", LOSSY, NORMED], MEDIUM),
    "lossy, first model whole": (["compression.select=0.01", LOSSY, OWN], MEDIUM),
    "a few": (["compression.select=0.0003", "compression.values=sign"], SHORT),
    "a few signs, and a lossy downlink": (
        [
            "compression.select=0.0003",
            "compression.indices=grid",
            "compression.values=scale",
            "downlink.mode=lossy",
        ],
        SHORT,
    ),
}


@asynccontextmanager
async def serving(directory: Path, file: FleetFile, settings: Sequence[str]) -> AsyncIterator[Hosted]:
    """A real server of the run that `file` emulates under seed 0."""
    flat = FlatModule(file.model.module, file.model.loss, 0)
    directory.mkdir()
    journal = Journal(directory / "journal.sqlite")
    theta, start = flat.first_model(0)
    journal.begin_run("fleet", file.model.module, flat.layout, theta, 0.0, start)
    journal.close()
    same = [f"model.module={file.model.module}", f"end.updates={file.end.updates}"]
    same.append(f"local.optimizer={file.local.optimizer}")
    same += [f"compression.{key}={value}" for key, value in file.compression]
    shape = datasets.load(file.model.data, "test").x.shape[1:]
    same.append(f"model.input={','.join(map(str, shape))}")
    async with hosting(directory, *same, *settings, layout=flat.layout) as hosted:
        yield hosted


def dial(port: int, name: str) -> Link:
    return Link(f"http://127.0.0.1:{port}", None, Hello(PROTOCOL, name, b"", {}), Random(0))


@dataclass(frozen=True, slots=True)
class Measured:
    """A real server's count, and what its sockets carried while updates and receipts went over them."""

    traffic: Traffic
    ingress: int
    egress: int


async def pushed_for_real(directory: Path, file: FleetFile, settings: Sequence[str], ran: Ran) -> Measured:
    """The updates of `ran`, pushed over sockets; each must be answered as it was in the emulation."""
    async with serving(directory, file, settings) as hosted, AsyncExitStack() as stack:
        devices = [await stack.enter_async_context(dial(hosted.port, name)) for name in names(file, ran)]
        for device in devices:
            await device.pull(None if (await device.join()).start is None else 0)
        total = hosted.traffic.total
        ingress, egress = total.ingress, total.egress
        for arrival in ran.server.arrivals:
            device = devices[arrival.push.device - 1]
            try:
                answer: Receipt | Refused = await device.push(arrival.push.update)
            except Refused as refusal:
                answer = refusal
                await device.pull(arrival.push.update.base, arrival.push.update.held)
            if isinstance(answer, Receipt):
                assert answer == arrival.answer
            else:
                assert type(answer) is type(arrival.answer)
        assert hosted.engine.theta()[1].tobytes() == ran.server.engine.theta()[1].tobytes()
        return Measured(hosted.traffic, total.ingress - ingress, total.egress - egress)


def names(file: FleetFile, ran: Ran) -> list[str]:
    """As long as the devices' own: one class of one device, or names of five letters."""
    kinds = list(file.classes)
    assert len({len(kind) for kind in kinds}) == 1 or file.fleet.devices == 1
    assert file.fleet.devices <= 10
    return [f"{kinds[0]}-{number}" for number in range(file.fleet.devices)]


def total_of(counted: dict[type[Record], int], *kinds: type[Record]) -> int:
    return sum(counted[kind] for kind in kinds)


@pytest.mark.parametrize(("settings", "payload"), CODINGS.values(), ids=CODINGS.keys())
def test_one_device(settings: Sequence[str], payload: range, tmp_path: Path) -> None:
    file = fleet_of(ONE, DIGITS, "end.updates=5", *settings)
    ran = run(file)
    real = asyncio.run(pushed_for_real(tmp_path / "real", file, settings, ran))
    emulated = ran.server.traffic
    assert all(len(wire.encode(one.push.update)) in payload for one in ran.server.arrivals)
    assert dict(real.traffic.received) == dict(emulated.received)
    assert dict(real.traffic.sent) == dict(emulated.sent)
    assert real.traffic.received.keys() == {Hello, Pull, Update}
    assert real.traffic.sent.keys() == {Welcome, Model, Receipt}
    # Not what was computed, but what the socket took and gave.
    assert real.ingress == emulated.received[Update]
    assert real.egress == emulated.sent[Receipt]


def test_a_device_that_joins_at_version_0_downloads_next_to_nothing(tmp_path: Path) -> None:
    """A Welcome, a hundred bytes longer, instead of the model of 153 kB; as both servers count."""
    file = fleet_of(ONE, DIGITS, "end.updates=1", "compression.select=0.01")
    ran = run(file)
    real = asyncio.run(pushed_for_real(tmp_path / "real", file, ["compression.select=0.01"], ran))
    for sent in (ran.server.traffic.sent, real.traffic.sent):
        assert 0 < sent[Model] < 20
        assert 0 < sent[Welcome] < 450


SEVERAL = ["compression.select=0.01", "coordination.window=3"]


def several(*settings: str) -> FleetFile:
    """Six devices, some of whose updates come too late."""
    toml = MIXED.replace("quick", "fresh").replace("slow", "stale")
    return fleet_of(toml, OWN, "end.updates=20", *SEVERAL, *settings)


@pytest.mark.parametrize("downlink", ["downlink.mode=exact", "downlink.mode=lossy"])
def test_several_devices_and_refusals(downlink: str, tmp_path: Path) -> None:
    """Receipts with whole models and with differences; all but the refusals themselves (see below)."""
    file = several(downlink)
    ran = run(file)
    real = asyncio.run(pushed_for_real(tmp_path / "real", file, [*SEVERAL, downlink], ran))
    emulated = ran.server.traffic
    assert dict(real.traffic.received) == dict(emulated.received)
    assert real.traffic.sent[Refusal] > 0
    for kind in (Welcome, Model, Receipt):
        assert real.traffic.sent[kind] == emulated.sent[kind]


def test_refusals_are_sent_too(tmp_path: Path) -> None:
    file = several()
    ran = run(file)
    real = asyncio.run(pushed_for_real(tmp_path / "real", file, SEVERAL, ran))
    assert dict(real.traffic.sent) == dict(ran.server.traffic.sent)


def test_several_devices_and_lossy_differences(tmp_path: Path) -> None:
    """None of them in step: each is sent what it lacks, by both servers the same."""
    settings = ["compression.select=0.01", LOSSY]
    at_once = [f"devices.stale.{key}" for key in ("latency_ms=0", "uplink_mbps=100", "downlink_mbps=100")]
    toml = MIXED.replace("quick", "fresh").replace("slow", "stale")  # names of one length
    file = fleet_of(toml, DIGITS, "end.updates=40", *settings, *at_once)
    ran = run(file)
    real = asyncio.run(pushed_for_real(tmp_path / "real", file, settings, ran))
    assert dict(real.traffic.received) == dict(ran.server.traffic.received)
    assert dict(real.traffic.sent) == dict(ran.server.traffic.sent)


async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


@pytest.mark.parametrize("down", ["exact", "lossy"])
@pytest.mark.parametrize("model", [DIGITS, NORMED], ids=["parameters only", "running statistics"])
def test_a_real_device_does_what_the_emulated_one_does(model: str, down: str, tmp_path: Path) -> None:
    """Not the records only: the whole client, on the same data with the same seed."""
    settings = ["compression.select=0.01", "compression.feedback=0.5", "local.steps=2"]
    settings += [f"downlink.mode={down}"]
    file = fleet_of(ONE, model, "end.updates=6", *settings)
    ran = run(file)
    (share,) = prepare(file).shares

    async def train() -> tuple[list[bytes], Traffic]:
        async with serving(tmp_path / "real", file, settings) as hosted, dial(hosted.port, "pi-0") as link:
            backend = TorchBackend(file.model.module, file.model.loss, seed=0)

            batches = Shuffled(share, np.random.default_rng([0, 1, 0]))

            async def make(welcome: Welcome) -> Trainer:
                return Trainer(backend, batches, welcome)

            progress = await Worker(link, make, batches, at_once).run()
            assert progress.updates == 6
            return [update.frame for update in hosted.journal.updates(0)], hosted.traffic

    frames, traffic = asyncio.run(train())
    assert frames == [wire.encode(push.update) for push, _ in ran.server.accepted]
    # The real one learns by a seventh update, which it need not have sent, that the run is over.
    extra = traffic.received[Update] - ran.server.traffic.received[Update]
    assert traffic.sent.pop(Stop) > 0
    assert 0 < extra < 2 * ran.server.traffic.received[Update] / 6
    assert total_of(traffic.received, Hello, Pull) == total_of(ran.server.traffic.received, Hello, Pull)
    assert dict(traffic.sent) == dict(ran.server.traffic.sent)


def test_real_devices_take_turns_as_the_emulated_ones_do(tmp_path: Path) -> None:
    """One device at a time, of three: whole clients and a whole server, the same records and bytes."""
    settings = ["coordination.mode=cohort", "coordination.cohort=1", "coordination.cohort_rounds=2"]
    settings += ["compression.select=0.01", "local.steps=3", LOSSY, "downlink.share=0.3"]
    file = fleet_of(ONE, DIGITS, "end.updates=10", "fleet.devices=3", *settings)
    ran = run(file)
    shares = prepare(file).shares

    async def train() -> tuple[list[bytes], Traffic]:
        async with serving(tmp_path / "real", file, settings) as hosted, AsyncExitStack() as stack:
            working, here, turns = [], asyncio.Event(), hosted.engine.turns
            assert turns is not None

            async def together(function: Callable[..., Any], *arguments: Any) -> Any:
                await here.wait()
                return function(*arguments)

            for place, share in enumerate(shares):
                link = await stack.enter_async_context(dial(hosted.port, f"pi-{place}"))
                backend = TorchBackend(file.model.module, file.model.loss, seed=0)
                batches = Shuffled(share, np.random.default_rng([0, 1, place]))

                async def make(
                    welcome: Welcome, of: tuple[TorchBackend, Shuffled] = (backend, batches)
                ) -> Trainer:
                    return Trainer(*of, welcome)

                working.append(asyncio.create_task(Worker(link, make, batches, together).run()))
                while len(turns.members) + turns.waiting <= place:  # they come in this order
                    await asyncio.sleep(0.005)
            here.set()
            progress = await asyncio.gather(*working)
            assert sum(one.updates for one in progress) == 10
            return [update.frame for update in hosted.journal.updates(0)], hosted.traffic

    frames, traffic = asyncio.run(train())
    assert frames == [wire.encode(push.update) for push, _ in ran.server.accepted]
    emulated = ran.server.traffic
    assert total_of(traffic.received, Hello, Update) == total_of(emulated.received, Hello, Update)
    assert [traffic.sent[kind] for kind in (Welcome, Model, Receipt)] == [
        emulated.sent[kind] for kind in (Welcome, Model, Receipt)
    ]
