"""The examples on Flower's own SuperLink and SuperNodes, with processes killed on the way."""

import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from benchmarks.flower_deployment import EXAMPLES, Deployment, servers_of
from edgeflock.server.journal.journal import Journal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ACCURATE = 0.88


@pytest.fixture
async def deployment(tmp_path: Path) -> AsyncIterator[Deployment]:
    home = tmp_path / "flwr"
    home.mkdir()
    deployed = Deployment(home)
    try:
        yield deployed
    finally:
        await deployed.close()


def accuracy(line: str) -> float:
    found = re.search(r"'accuracy': ([0-9.]+)", line)
    assert found, line
    return float(found[1])


@pytest.mark.long
async def test_the_example_trains_though_a_supernode_is_killed(
    deployment: Deployment, tmp_path: Path
) -> None:
    await deployment.superlink()
    await deployment.supernode(0, 2)
    victim = await deployment.supernode(1, 2)
    run = await deployment.run(
        EXAMPLES / "flower-numpy", f'num-server-rounds=6 checkpoint="{tmp_path / "checkpoint"}"'
    )
    await run.until("after round 2")
    await deployment.kill(victim)
    assert accuracy(await run.until("Global evaluation after round 6")) > ACCURATE
    await run.until("Final results")
    journal = Journal(tmp_path / "checkpoint" / "journal.sqlite")
    updates = sorted(account.updates for account in journal.accounts())
    journal.close()
    assert sum(updates) == 12
    assert len(updates) == 2
    assert updates[0] < updates[1]


@pytest.mark.long
async def test_a_killed_serverapp_and_a_killed_superlink_lose_nothing(
    deployment: Deployment, tmp_path: Path
) -> None:
    """The ServerApp dies in round 3, the SuperLink in round 5: `flwr run` again goes on in the same round."""
    config = f'num-server-rounds=6 checkpoint="{tmp_path / "checkpoint"}"'
    superlink = await deployment.superlink()
    for node in range(2):
        await deployment.supernode(node, 2)

    first = await deployment.run(EXAMPLES / "flower-numpy", config)
    before = accuracy(await first.until("Global evaluation after round 2"))
    (server,) = servers_of(deployment.home)
    os.kill(server, signal.SIGKILL)

    second = await deployment.run(EXAMPLES / "flower-numpy", config)
    await second.until(r"Going on at version [4-9]\d*, after round 2")
    again = accuracy(await second.until("Global evaluation after round 4"))
    assert again >= before - 0.05, "what was learned is still there"
    await deployment.kill(superlink)

    # It knows its SuperNodes no more, and they end.
    await deployment.superlink()
    for node in range(2):
        await deployment.supernode(node, 2)
    third = await deployment.run(EXAMPLES / "flower-numpy", config)
    await third.until("Going on at version .* after round 4")
    assert accuracy(await third.until("Global evaluation after round 6")) > ACCURATE
    await third.until("Final results")
    journal = Journal(tmp_path / "checkpoint" / "journal.sqlite")
    assert sum(account.updates for account in journal.accounts()) == journal.evaluations()[-1].version
    assert len({evaluation.version for evaluation in journal.evaluations()}) == 7
    journal.close()


@pytest.mark.network
@pytest.mark.long
async def test_the_example_trains_on_a_superlink_that_installs_its_dependencies(
    deployment: Deployment,
) -> None:
    """As `flower-superlink --insecure` starts it."""
    await deployment.superlink(installs=True)
    for node in range(2):
        await deployment.supernode(node, 2)
    run = await deployment.run(EXAMPLES / "flower-numpy", "num-server-rounds=2")
    await run.until("Global evaluation after round 2")
