"""Over real sockets: a device keeps the run's best model in a file for its own programs."""

import asyncio
import logging
from pathlib import Path
from random import Random

import numpy as np
import pytest

import edgeflock as ef
from edgeflock.client.run.model_keeper import ModelKeeper
from edgeflock.client.transport import Link
from edgeflock.client.transport.downloads import DownloadedModel
from edgeflock.shared.artifacts import ModelInfo, onnx_file, safetensors_file
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import PROTOCOL, Hello
from tests.hosting import gateway, hosting
from tests.integration.test_model_files import flowers
from tests.library.command_line import edgeflock

INFO = ModelInfo(model="m:M", layout=Layout.from_shapes([("w", (4,))]), run="r", version=7)
THETA = np.arange(4, dtype=np.float32)


@pytest.mark.slow
async def test_a_device_keeps_the_best_model(tmp_path: Path) -> None:
    held_out, mine = flowers(tmp_path / "held.csv", 100), flowers(tmp_path / "mine.csv", 400)
    kept = tmp_path / "model.onnx"
    async with ef.Server(
        "tests.integration.test_model_files:Flowers",
        directory=tmp_path / "run",
        updates=150,
        evaluate=held_out,
        evaluate_every=0.2,
        open=True,
        compression={"select": 1.0},
    ) as server:
        said = await asyncio.to_thread(
            edgeflock,
            *("client", "--set", f"client.server={server.url}", "--set", f"client.data={mine}"),
            *("--set", "client.backend=onnx", "--set", "client.health=false"),
            *("--set", f"client.keep_model={kept}", "--set", "client.keep_model_seconds=1"),
            cwd=tmp_path,
        )
        assert said.returncode == 0, said.stderr
        await server.until()
    (tmp_path / "device.toml").write_text(f'[client]\nkeep_model = "{kept}"\n')
    said = await asyncio.to_thread(
        edgeflock, "predict", "device.toml", "--data", mine.partition("?")[0], cwd=tmp_path
    )
    assert said.stdout.startswith("length,colour,kind,prediction,probability\n"), said.stderr
    info, outputs = onnx_file.load(kept)
    assert info.version == safetensors_file.load(tmp_path / "run" / "best.safetensors").info.version
    assert info.data is not None
    assert info.data.labels == ("iris", "rose")
    assert outputs(np.zeros((2, 3), np.float32)).shape == (2, 2)


async def test_behind_a_gateway_the_model_comes_from_its_leader(tmp_path: Path) -> None:
    async with hosting(tmp_path / "run", closed=True) as hosted, gateway(hosted) as (_, url):
        device = hosted.enrol("d")
        async with Link(url, device, Hello(PROTOCOL, "d", b"", {}), Random(0)) as link:
            found = await link.downloads.model("safetensors", "")
            assert found is not None
            path = tmp_path / "m.safetensors"
            path.write_bytes(found.octets)
            assert safetensors_file.load(path).theta.tobytes() == hosted.engine.parameters.theta.tobytes()
            assert await link.downloads.model("safetensors", found.etag) is None, "it has not changed"
            with pytest.raises(ConfigError, match="gives no model"):
                await link.downloads.model("onnx", "")


def keeper(path: Path, *answers: object) -> ModelKeeper:
    """A keeper whose server gives these answers, one after the other."""
    left = [*answers]

    async def download(format: str, etag: str) -> DownloadedModel | None:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert answer is None or isinstance(answer, bytes)
        return None if answer is None else DownloadedModel("tag", answer)

    return ModelKeeper(path, 1.0, download)


async def test_what_is_no_model_never_replaces_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "model.safetensors"
    whole = safetensors_file.encode(INFO, THETA)
    one = keeper(path, whole, b"", b"\xff" * 100, whole[:30], OSError("gone"), OSError("gone"), None)
    assert await one.fetch()
    with caplog.at_level(logging.WARNING):
        for expected in (False, False, False, False, False, True):
            assert await one.fetch() == expected
    assert path.read_bytes() == whole
    assert [*tmp_path.iterdir()] == [path]
    assert caplog.text.count("gone") == 1, "a failure that stays is told once"
    hostile = keeper(tmp_path / "model.onnx", b"\x08\x0a" * 50)
    assert not await hostile.fetch()
    assert not (tmp_path / "model.onnx").exists()


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("model.pt", r"must end with \.onnx or \.safetensors"),
        ("no/model.onnx", "there is no folder"),
    ],
)
def test_settings_that_cannot_work_are_named(tmp_path: Path, path: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        keeper(tmp_path / path)
