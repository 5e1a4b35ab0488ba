"""Over real sockets: devices whose labels contradict each other, each with a head of its own."""

import asyncio
import io
from pathlib import Path
from typing import Any, Literal

import aiohttp
import msgpack
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor, nn

import edgeflock as ef
from edgeflock.client.run import run_client
from edgeflock.operations.status import print_status
from edgeflock.shared.artifacts import safetensors_file
from edgeflock.shared.settings.client import ClientSettings

Backend = Literal["onnx", "torch"]


class Headed(nn.Module):
    """Four numbers in two classes."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(torch.relu(self.body(x)))
        return output


HEADED = f"{__name__}:Headed"


def samples(path: Path, *, swapped: bool) -> str:
    """400 samples of the class that the first number tells, or of the other one."""
    x = np.random.default_rng(1).standard_normal((400, 4)).astype(np.float32)
    np.savez(path, x_train=x, y_train=((x[:, 0] > 0) != swapped).astype(np.int64))
    return f"npz:{path}"


def serving(directory: Path, updates: int = 800, port: int = 0, **coordination: Any) -> ef.Server:
    return ef.Server(
        ef.Model(HEADED, example=np.zeros((1, 4), np.float32), personal=["head.*"]),
        directory=directory / "run",
        port=port,
        open=True,
        updates=updates,
        evaluate_on_devices=20,
        local_optimizer="adafactor",
        coordination=coordination,
        compression={"select": 1.0},
    )


def device(url: str, directory: Path, name: str, backend: Backend, **others: Any) -> ClientSettings:
    return ClientSettings(
        server=url,
        name=name,
        backend=backend,
        model=HEADED if backend == "torch" else "",
        data=samples(directory / f"{name}.npz", swapped=name == "south"),
        directory=str(directory),
        health=False,
        labels=[f"site={name}"],
        **others,
    )


def stored_head(file: Path) -> NDArray[np.float32]:
    return np.frombuffer(msgpack.unpackb(file.read_bytes()[32:])[-1], "<f4")


async def status_of(server: ef.Server) -> Any:
    async with aiohttp.ClientSession() as http, http.get(f"{server.url}/v1/status") as answer:
        return await answer.json()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "onnx"])
async def test_devices_that_contradict_each_other_both_learn(backend: Backend, tmp_path: Path) -> None:
    kept = tmp_path / "north.safetensors"
    # In rounds of two, so that neither device trains without the other.
    async with serving(tmp_path, mode="rounds", quorum=2, deadline=600.0, learning_rate=0.01) as server:
        north = device(server.url, tmp_path, "north", backend, keep_model=str(kept))
        await asyncio.gather(run_client(north), run_client(device(server.url, tmp_path, "south", backend)))
        await server.until()
        status = await status_of(server)
        async with aiohttp.ClientSession() as http, http.get(f"{server.url}/v1/model.onnx") as answer:
            assert answer.status == 422
            assert "model.personal" in (await answer.json())["detail"]
    assert status["parameters"] == 40  # the body's
    assert status["evaluation"]["accuracy"] > 0.9  # the mean of the devices'
    assert status["evaluation"]["metrics"]["on_devices.num-examples"] == 80
    assert status["on_devices"]["num-examples"] == 80
    assert {one: found["num-examples"] for one, found in status["on_devices_by_label"].items()} == {
        "site=north": 40,
        "site=south": 40,
    }
    assert {device["facts"]["version"] for device in status["devices"]} == {ef.__version__}
    assert status["on_devices"]["accuracy"] > 0.9  # one head for both would be right about half of them

    shown = io.StringIO()
    print_status(Console(file=shown, width=200), status)
    assert shown.getvalue().count("num-examples") == 0
    assert shown.getvalue().count("On devices' own 80 examples: ") == 1

    saved = safetensors_file.load(kept)
    assert [tensor.name for tensor in saved.info.layout.tensors] == ["body.weight", "body.bias"]
    x = np.random.default_rng(9).standard_normal((200, 4)).astype(np.float32)
    with torch.no_grad():
        outputs = ef.load(kept).module()(torch.from_numpy(x))
    assert (outputs.argmax(1).numpy() == (x[:, 0] > 0)).mean() > 0.9  # with the device's own head


async def test_they_outlast_the_process_and_not_the_run(tmp_path: Path) -> None:
    async with serving(tmp_path, updates=40) as server:
        port = int(server.url.rpartition(":")[2])
        await run_client(device(server.url, tmp_path, "north", "torch"))
    (file,) = tmp_path.glob("*.personal")
    heads = [stored_head(file)]
    async with serving(tmp_path, updates=41, port=port) as server:
        await run_client(device(server.url, tmp_path, "north", "torch"))
    heads.append(stored_head(file))
    async with serving(tmp_path / "other", updates=1, port=port) as server:
        await run_client(device(server.url, tmp_path, "north", "torch"))
    (other,) = set(tmp_path.glob("*.personal")) - {file}
    assert (stored_head(file) == heads[1]).all()
    heads.append(stored_head(other))
    steps = [float(np.linalg.norm(head - heads[0])) for head in heads]
    assert 0 < steps[1] < steps[2] / 5  # one step more; then the layers of another run
