"""Over real sockets: a frozen base that devices download once, and adapters that they train."""

import asyncio
from pathlib import Path
from typing import Any, Literal

import aiohttp
import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import edgeflock as ef
from edgeflock.client.run import run_client
from edgeflock.inference.fetching import fetch_model
from edgeflock.server.gateway import Gateway, GatewayAddress
from edgeflock.shared.artifacts import onnx_file, safetensors_file
from edgeflock.shared.errors import ConfigError, ServerAtFault
from edgeflock.shared.model.base_file import decode
from edgeflock.shared.model.lora import Lora
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.settings.client import ClientSettings
from tests.integration.test_first_model import cut_every
from tests.proxy import proxying

Backend = Literal["onnx", "torch"]


class Layered(nn.Module):
    """Four numbers in two classes, with running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 16)
        self.norm = nn.BatchNorm1d(16)
        self.head = nn.Linear(16, 2)
        self.unused = nn.Linear(16, 16_000)  # so that a download can be cut

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(torch.relu(self.norm(self.body(x))))
        return output


LAYERED = f"{__name__}:Layered"
LORA = {"rank": 2, "alpha": 4.0, "targets": ["body", "head"]}


def samples(path: Path, seed: int) -> str:
    path.parent.mkdir(exist_ok=True)
    x = np.random.default_rng(seed).standard_normal((400, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    return f"npz:{path}"


def serving(directory: Path, updates: int = 300, port: int = 0, **others: Any) -> ef.Server:
    return ef.Server(
        ef.Model(LAYERED, lora={**LORA, **others.pop("lora", {})}, weights=others.pop("weights", "")),
        evaluate=samples(directory / "test.npz", 0),
        directory=directory / "run",
        port=port,
        open=True,
        compression={"select": 1.0},
        updates=updates,
        **others,
    )


def device(url: str, directory: Path, name: str, backend: Backend = "torch", **others: Any) -> ClientSettings:
    return ClientSettings(
        server=url,
        name=name,
        backend=backend,
        model=LAYERED if backend == "torch" else "",
        data=samples(directory / f"{name}.npz", len(name)),
        directory=str(directory / "kept"),
        health=False,
        **others,
    )


def port_of(server: ef.Server) -> int:
    return int(server.url.rpartition(":")[2])


async def status_of(server: ef.Server) -> Any:
    async with aiohttp.ClientSession() as http, http.get(f"{server.url}/v1/status") as answer:
        return await answer.json()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "kind"), [("torch", "f32"), ("onnx", "f32"), ("torch", "int8"), ("onnx", "int8")]
)
async def test_devices_train_adapters_of_a_base_that_they_download_once(
    backend: Backend, kind: str, tmp_path: Path
) -> None:
    async with serving(tmp_path, lora={"base": kind}) as server:
        await asyncio.gather(
            *(run_client(device(server.url, tmp_path, name, backend)) for name in ("north", "south"))
        )
        await server.until()
        status = await status_of(server)
    assert status["parameters"] == 2 * (4 + 16) + 2 * (16 + 2)
    assert status["evaluation"]["accuracy"] > 0.9
    (base,) = (tmp_path / "kept").glob("*.base")
    assert base.read_bytes() == (tmp_path / "run" / "base").read_bytes()

    octets, int8 = np.fromfile(base, np.uint8), kind == "int8"
    base_theta = decode(FlatModule(LAYERED, "cross_entropy").layout, octets, int8=int8)
    assert octets.size == (384_496 if int8 else 4 * 272_178) == status["base"]["size"]
    saved = safetensors_file.load(tmp_path / "run" / "best.safetensors")
    flat = FlatModule(LAYERED, "cross_entropy", 0)
    assert saved.info.layout == flat.layout
    assert saved.info.lora == {"rank": 2, "alpha": 4.0, "layers": ["body", "head"]}
    for tensor in flat.layout.tensors:
        moved = saved.theta[tensor.start : tensor.stop] != base_theta[tensor.start : tensor.stop]
        assert moved.any() == (tensor.name in ("body.weight", "head.weight"))
    adapted = FlatModule(LAYERED, "cross_entropy", 0, None, Lora(2, 4.0, ("body", "head")))
    adapted.load_base(base_theta.copy())
    theta = np.concatenate([saved.rest[tensor.name].ravel() for tensor in adapted.layout.tensors])
    x = np.random.default_rng(5).standard_normal((50, 4)).astype(np.float32)
    (wanted,) = adapted.predictor(theta)(x)
    found = ef.load(tmp_path / "run" / "best.safetensors").outputs(x, 50)
    assert found == pytest.approx(wanted, abs=1e-4)


async def test_a_download_resumes_and_is_never_repeated(tmp_path: Path) -> None:
    async with serving(tmp_path, updates=4) as server, proxying(port_of(server)) as proxy:
        times = 4
        size = (tmp_path / "run" / "base").stat().st_size
        lost = cut_every(proxy, size // 5, times)
        await run_client(device(f"http://127.0.0.1:{proxy.port}", tmp_path, "north"))
        status, port = await status_of(server), port_of(server)
        assert len(lost) == times
        assert size < proxy.downstream - sum(lost) < size + 60_000, "what came is kept"
    assert status["base"]["size"] == size
    assert status["base"]["egress"] > size  # framing, and what was lost with the line
    (north,) = status["devices"]
    assert north["base_egress"] == status["base"]["egress"]
    assert status["egress"] < 60_000 < size, "it is counted apart"
    async with serving(tmp_path, updates=6, port=port) as server:
        await run_client(device(server.url, tmp_path, "north"))
        await run_client(device(server.url, tmp_path, "south"))
        status = await status_of(server)
    assert status["version"] == 6
    assert status["base"]["egress"] == 0, "devices of a folder share it, over restarts of both ends"


async def test_another_base_is_refused_by_devices_and_by_the_run(tmp_path: Path) -> None:
    async with serving(tmp_path, updates=4) as server:
        base = tmp_path / "run" / "base"
        octets = base.read_bytes()
        base.write_bytes(octets[:-1] + bytes([octets[-1] ^ 1]))
        with pytest.raises(ServerAtFault, match="base of the model twice that is not the one it announced"):
            await run_client(device(server.url, tmp_path, "north"))
        assert not list((tmp_path / "kept").glob("*.base")), "nothing of it is kept"
        assert not list((tmp_path / "kept").glob("*.part"))
    with pytest.raises(ConfigError, match="the run began with another base than model.weights gives now"):
        async with serving(tmp_path, updates=4):
            pass


async def test_a_gateway_asks_for_the_base_once(tmp_path: Path) -> None:
    async with serving(tmp_path, updates=8) as server:
        one = Gateway(server.url, "", "one", GatewayAddress(port=0))
        async with one.serving() as port:
            url = f"http://127.0.0.1:{port}"
            for name in ("north", "south"):
                await run_client(device(url, tmp_path / name, name))
        status = await status_of(server)
    assert len({path.name for path in tmp_path.glob("*/kept/*.base")}) == 1
    assert len([*tmp_path.glob("*/kept/*.base")]) == 2
    assert status["base"]["size"] < status["base"]["egress"] < 1.1 * status["base"]["size"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["f32", "int8"])
async def test_the_adapters_load_into_peft(kind: str, tmp_path: Path) -> None:
    async with serving(tmp_path, lora={"base": kind}) as server:
        await run_client(device(server.url, tmp_path, "north"))
        await server.until()
        pulled = await fetch_model(server.url, "", "best", "peft", tmp_path / "adapters")
        whole = await fetch_model(server.url, "", "best", "safetensors", tmp_path / "whole.safetensors")
        last = await fetch_model(server.url, "", "last", "peft", tmp_path / "last")
        onnx = await fetch_model(server.url, "", "best", "onnx", tmp_path / "whole.onnx")
    assert sorted(path.name for path in pulled.path.iterdir()) == [
        "README.md", "adapter_config.json", "adapter_model.safetensors"
    ]  # fmt: skip
    assert "adapters of rank 2, alpha 4, of body, head" in pulled.card.read_text()
    tensors, latest = (
        safetensors.torch.load_file(found.path / "adapter_model.safetensors") for found in (pulled, last)
    )
    assert latest.keys() == tensors.keys()
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        "base_model.model.body.lora_A.weight": (2, 4),
        "base_model.model.body.lora_B.weight": (16, 2),
        "base_model.model.head.lora_A.weight": (2, 16),
        "base_model.model.head.lora_B.weight": (2, 2),
    }
    module = Layered()
    module.load_state_dict(safetensors.torch.load_file(whole.path), strict=True)
    x = np.random.default_rng(5).standard_normal((50, 4)).astype(np.float32)
    with torch.no_grad():
        wanted = module.eval()(torch.from_numpy(x)).numpy()
    assert onnx_file.load(onnx.path)[1](x) == pytest.approx(wanted, abs=1e-4)

    peft = pytest.importorskip("peft", reason="the package peft is not installed")
    layout = FlatModule(LAYERED, "cross_entropy").layout
    values = decode(layout, np.fromfile(tmp_path / "run" / "base", np.uint8), int8=kind == "int8")
    base = module.state_dict()
    for tensor in layout.tensors:
        base[tensor.name] = torch.from_numpy(values[tensor.start : tensor.stop]).view(tensor.shape)
    fresh = Layered()
    fresh.load_state_dict(base)
    adapted = peft.PeftModel.from_pretrained(fresh, str(pulled.path)).eval()
    with torch.no_grad():
        assert adapted(torch.from_numpy(x)).numpy() == pytest.approx(wanted, abs=1e-4)
