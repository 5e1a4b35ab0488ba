"""Over real sockets: a run's model is pulled in each format and predicts as the run does."""

import asyncio
import csv
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

import edgeflock as ef
from edgeflock.inference.fetching import FORMATS, fetch_model
from edgeflock.server.hosting.weights import first_model
from edgeflock.shared.artifacts import digest_of, onnx_file, safetensors_file
from edgeflock.shared.errors import ConfigError, EdgeflockError
from edgeflock.shared.model.torch_module import FlatModule
from tests.hosting import hosting
from tests.library.command_line import edgeflock

CSV = "length,colour,kind\n"


def flowers(path: Path, rows: int) -> str:
    """A table of two classes that one number tells apart."""
    lines = [
        f"{row % 10},{'red' if row % 3 else 'blue'},{'rose' if row % 10 > 4 else 'iris'}"
        for row in range(rows)
    ]
    path.write_text(CSV + "\n".join(lines) + "\n")
    return f"csv:{path}?label=kind"


@asynccontextmanager
async def trained(directory: Path) -> AsyncIterator[ef.Server]:
    held_out, mine = flowers(directory / "held.csv", 100), flowers(directory / "mine.csv", 400)
    server = ef.Server(
        "tests.integration.test_model_files:Flowers",
        directory=directory / "run",
        updates=150,
        evaluate=held_out,
        evaluate_every=0.2,
        open=True,
        compression={"select": 1.0},
    )
    async with server:
        device = asyncio.create_task(ef.Client(server.url, data=mine, health=False, backend="onnx").run())
        await server.until()
        await device
        yield server


def Flowers() -> "object":
    from torch import nn

    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


@pytest.mark.slow
async def test_each_format_predicts_as_the_run_does(tmp_path: Path) -> None:
    async with trained(tmp_path) as server:
        token = server.admin_token.read_text().strip()
        new = tmp_path / "new.csv"
        new.write_text("id,colour,length\na,red,9\nb,blue,0\n")
        files = []
        for format in (one for one in FORMATS if one != "peft"):
            done = await fetch_model(server.url, token, "last", format, tmp_path / FORMATS[format][2])
            files.append(done.path)
            assert done.version == 150
            assert "## Traffic" in done.card.read_text()
        best = await fetch_model(server.url, token, "best", "safetensors", tmp_path / "best.safetensors")
        early = await fetch_model(server.url, token, "40", "onnx", tmp_path / "early.onnx")
        assert best.version <= 150
        assert early.version == 40
        for version, says in (
            ("151", "the run has versions 0 to 150"),
            ("x", "must be last, best or a number"),
        ):
            with pytest.raises(ConfigError if version == "x" else EdgeflockError, match=says):
                await fetch_model(server.url, token, version, "onnx", tmp_path / "no.onnx")
        with pytest.raises(EdgeflockError, match=r"has no model\.lora, so no adapters"):
            await fetch_model(server.url, token, "last", "peft", tmp_path / "no.onnx")
        assert not (tmp_path / "no.onnx").exists()
    for file in (*files, best.path):
        said = await asyncio.to_thread(edgeflock, "predict", str(file), "--data", f"csv:{new}", cwd=tmp_path)
        rows = [*csv.DictReader(said.stdout.splitlines())]
        assert [row["prediction"] for row in rows] == ["rose", "iris"], said.stderr
        assert [row["id"] for row in rows] == ["a", "b"]
        assert all(float(row["probability"]) > 0.5 for row in rows)
    flat = FlatModule("tests.integration.test_model_files:Flowers", "cross_entropy")
    for file, version in ((best.path, "@best"), (files[0], "@last"), (early.path, "@40"), (best.path, "")):
        info = onnx_file.load(file)[0] if file.suffix == ".onnx" else safetensors_file.load(file).info
        theta, start = first_model(flat, f"run:{tmp_path / 'run'}{version}", 0)
        assert (digest_of(theta), start) == (info.digest, None), version
    for weights, says in (
        (f"run:{tmp_path / 'run'}@first", "after @ comes best, last or the number of a version"),
        (f"run:{tmp_path / 'run'}@999", "the run has versions 0 to 150"),
        (f"run:{tmp_path}@last", "holds no journal.sqlite"),
        (f"run:{tmp_path / 'nowhere'}", "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=says):
            first_model(flat, weights, 0)
    other = FlatModule("edgeflock.client.zoo:DigitsCNN", "cross_entropy")
    with pytest.raises(ConfigError, match="that run's model is not edgeflock.client.zoo:DigitsCNN"):
        first_model(other, f"run:{tmp_path / 'run'}@last", 0)
    loaded = ef.load(best.path)
    assert loaded.predict(f"csv:{new}").tolist() == ["rose", "iris"]
    assert loaded.accuracy is not None


@pytest.mark.slow
async def test_the_command_writes_a_file_and_says_what_it_is(tmp_path: Path) -> None:
    async with trained(tmp_path) as server:
        arguments = (
            "model",
            "pull",
            server.url,
            "--token-file",
            str(server.admin_token),
            "--format",
            "onnx",
        )
        said = await asyncio.to_thread(edgeflock, *arguments, cwd=tmp_path)
        assert said.returncode == 0, said.stderr
        assert "model.onnx: version 150" in said.stdout
        said = await asyncio.to_thread(edgeflock, *arguments, "--json", cwd=tmp_path)
        assert json.loads(said.stdout)["version"] == 150


async def test_an_earlier_version_is_for_admins(tmp_path: Path) -> None:
    settings = dict(admin_token="the-admins-own-token", viewer_token="a-viewers-own-token")
    async with hosting(tmp_path, closed=True, **settings) as hosted, aiohttp.ClientSession() as http:  # type: ignore[arg-type]
        for token, version, status in (
            ("a-viewers-own-token", "last", 200),
            ("a-viewers-own-token", "0", 403),
            ("the-admins-own-token", "0", 200),
            ("the-admins-own-token", "7", 404),
            ("the-admins-own-token", "best", 404),
            ("the-admins-own-token", "-1", 400),
            ("the-admins-own-token", "9" * 30, 400),
        ):
            headers = {"Authorization": f"Bearer {token}"}
            url = f"{hosted.url}/v1/model.safetensors?version={version}"
            async with http.get(url, headers=headers) as response:
                assert response.status == status, (version, await response.text())
        headers = {"Authorization": f"Bearer {hosted.enrol('pi').credential}"}
        for path, status in (
            ("safetensors", 200),
            ("safetensors?version=0", 403),
        ):
            async with http.get(f"{hosted.url}/v1/model.{path}", headers=headers) as response:
                assert response.status == status, (path, await response.text())
