"""Tasks beside the sessions: one that dies takes the server along, and both ends learn why."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from benchmarks.hosting import hosted_run
from edgeflock.server import app as server_app
from edgeflock.server.evaluation.evaluator import Evaluator
from edgeflock.server.journal import Journal
from edgeflock.server.ledger.claim import claim_run
from edgeflock.server.roster.hub import Hub
from edgeflock.shared.errors import ConfigError, EdgeflockError
from edgeflock.shared.settings.config import Config, parse
from tests.hosting import LAYOUT, hosting, initial_theta


def settings(directory: Path) -> Config:
    return parse(
        overrides=["server.port=0", "server.open=true", "model.data=", f"server.directory={directory}"]
    )


async def serve_until(directory: Path, act: Callable[[int], None]) -> None:
    """Serve, and `act` on the port once it listens."""
    config = settings(directory)
    claim_of = claim_run(directory, "server.directory", LAYOUT, initial_theta(LAYOUT.size), config)
    with claim_of as claim, hosted_run(claim, directory) as hosted:
        async with server_app.serve(config, hosted) as served:
            act(served.port)
            await served.ended.wait()


@pytest.mark.parametrize("victim", [(Evaluator, "the evaluator"), (Hub, "the hub")])
async def test_a_task_that_dies_ends_the_server_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: tuple[type, str]
) -> None:
    kind, name = victim
    dying = asyncio.Event()

    async def die(*_: object) -> None:
        await dying.wait()
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(kind, "run", die)
    with pytest.raises(EdgeflockError, match=rf"{name} failed: ZeroDivisionError\('a fault of ours'\)"):
        await serve_until(tmp_path, lambda port: dying.set())
    # All is let go: it can be served again in this process.
    monkeypatch.undo()
    async with hosting(tmp_path):
        pass


async def test_it_is_not_ready_once_a_task_has_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dying = asyncio.Event()

    async def die(*_: object) -> None:
        await dying.wait()
        raise ZeroDivisionError

    monkeypatch.setattr(Evaluator, "run", die)
    async with hosting(tmp_path) as hosted, aiohttp.ClientSession() as http:

        async def ready() -> int:
            async with http.get(f"http://127.0.0.1:{hosted.port}/readyz") as response:
                return response.status

        assert await ready() == 200
        dying.set()
        while await ready() != 503:
            await asyncio.sleep(0)


def test_a_last_snapshot_that_cannot_be_written_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    config, theta = settings(tmp_path), initial_theta(LAYOUT.size)
    with (
        pytest.raises(EdgeflockError, match="last snapshot could not be written: .* full; all up"),
        claim_run(tmp_path, "server.directory", LAYOUT, theta, config),
    ):
        monkeypatch.setattr(Journal, "add_snapshot", full)
    monkeypatch.undo()
    with claim_run(tmp_path, "server.directory", LAYOUT, theta, config):
        pass


async def test_a_run_is_one_server_s_and_then_another_s(tmp_path: Path) -> None:
    """Serve, stop, open again in one process; and what fails to open lets go."""
    config, theta = settings(tmp_path), initial_theta(LAYOUT.size)
    async with hosting(tmp_path) as hosted:
        assert hosted.engine.published.version == 0
        with pytest.raises(ConfigError, match="another server hosts it"):
            claim_run(tmp_path, "server.directory", LAYOUT, theta, config).__enter__()
    with claim_run(tmp_path, "server.directory", LAYOUT, theta, config) as claim:
        claim.journal.add_update(1, 1, 1, 0.0, 0.5, 10, b"no record")
    for _ in range(2):
        with pytest.raises(EdgeflockError), claim_run(tmp_path, "server.directory", LAYOUT, theta, config):
            pytest.fail("the journal cannot be recovered")
