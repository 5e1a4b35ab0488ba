"""A private run over real sockets: who waits for a tree, whose budget is spent, and what monitors read."""

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from edgeflock.operations.status import print_status
from edgeflock.shared.errors import BaseExpired, RunOver
from edgeflock.shared.protocol.messages import Receipt
from tests.hosting import Hosted, hosting
from tests.integration.operator import ADMIN, operating
from tests.integration.test_cohorts import push
from tests.integration.test_gateway_tasks import behind
from tests.integration.test_tasks import link

PRIVATE = (
    "coordination.mode=buffer", "coordination.buffer=2", "coordination.rule=none", "privacy.mode=server",
    "privacy.noise=0.5", "privacy.devices=100", "privacy.tree=2", "privacy.participations=2",
)  # fmt: skip

Hosts = Callable[..., AbstractAsyncContextManager[Hosted]]


@pytest.fixture(params=[hosting, behind], ids=["directly", "through a gateway"])
def hosts(request: pytest.FixtureRequest) -> Hosts:
    found: Hosts = request.param
    return found


async def test_a_device_waits_for_the_next_tree_and_ends_with_its_budget(
    hosts: Hosts, tmp_path: Path
) -> None:
    async with hosts(tmp_path, *PRIVATE) as hosted:
        async with (
            link(hosted.port, "a", "") as a,
            link(hosted.port, "b", "") as b,
            link(hosted.port, "c", "") as c,
            link(hosted.port, "d", "") as d,
        ):
            for device in (a, b, c, d):
                await device.join()
                await device.pull(None)
            assert await push(a, 0, 1) == Receipt(1, 1, None)
            with pytest.raises(BaseExpired, match="would cost more privacy"):
                await push(a, 1, 2)
            waiting = asyncio.create_task(a.pull(1))
            await push(b, 1, 1)
            await push(c, 2, 1)
            await hosted.writer.call(lambda: None)
            assert not waiting.done()
            await push(d, 3, 1)  # the second step of the tree
            assert (await waiting).version == 4
            await push(a, 4, 3)
            with pytest.raises(RunOver, match="2 updates spent its privacy budget"):
                await a.pull(5)


async def test_monitors_read_what_it_has_cost(tmp_path: Path) -> None:
    settings = (*PRIVATE, "privacy.epsilon=40")
    async with hosting(tmp_path, *settings, admin_token=ADMIN) as hosted, operating(hosted.port) as operator:
        async with link(hosted.port, "a", "") as a:
            await a.join()
            await push(a, 0, 1)
        known = json.loads((await operator.get("/v1/status"))[1])
        metrics = (await operator.get("/metrics"))[1]
        async with operator.feed() as frames:
            overview = (await frames.next()).overview
    spent = hosted.engine.eligibility.privacy_spent
    assert spent is not None
    assert known["privacy"] == spent._asdict()
    assert overview.privacy == spent
    assert spent.epsilon is not None
    assert f"edgeflock_privacy_epsilon {spent.epsilon}" in metrics
    assert "edgeflock_privacy_budget 40.0" in metrics
    print_status(Console(file=(shown := StringIO()), width=120), known)
    assert (
        f"Differential privacy of each device: epsilon {spent.epsilon:.3g} of 40 at delta" in shown.getvalue()
    )
    assert "staleness  ingress" in shown.getvalue(), "devices keep their loss to themselves"
