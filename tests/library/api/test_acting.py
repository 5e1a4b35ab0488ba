"""Devices that act, over real sockets: one with torch, one on onnxruntime alone, one that comes late."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import edgeflock as ef
from tests.shared.environments.worlds import HERE

CORRIDOR = f"{HERE}Corridor?length=8"
POLICY = ef.Model("edgeflock.client.zoo:ActorCritic(observations=2, actions=2, width=16)", loss="a2c")


def device(server: ef.Server, name: str, backend: str) -> ef.Client:
    return ef.Client(
        server.url, token=server.token, name=name, data=CORRIDOR, backend=backend, model=POLICY, health=False
    )


@pytest.mark.slow
@pytest.mark.usefixtures("exports_in_this_process")
async def test_a_fleet_learns_to_walk_while_a_device_comes_and_goes(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"updates": 240, "batch": 32, "evaluate_every": 0.2, "evaluate": CORRIDOR}
    coordination = {"mode": "rounds", "quorum": 2, "learning_rate": 0.5}  # neither is done before the other
    async with ef.Server(POLICY, directory=tmp_path, coordination=coordination, **settings) as server:
        async with asyncio.TaskGroup() as group:
            for backend in ("torch", "onnx"):
                group.create_task(device(server, backend, backend).run())
            leaving = asyncio.create_task(device(server, "leaving", "torch").run())
            async for event in server.events():
                if event.kind == "joined" and event.device == "leaving":
                    leaving.cancel()
        result = await server.until()
    await asyncio.gather(leaving, return_exceptions=True)
    assert result.version >= 240
    assert result.evaluations[-1].metrics["return"] == 8
    assert result.loss == -8
