"""docs/sensors.md is true: its files are written and its commands run, as they stand there."""

import asyncio
import json
import os
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.client.data.sources import open_source
from tests.client.data.sources.brokers import Mosquitto
from tests.ports import lasting

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

TEXT = (Path(__file__).parents[2] / "docs/sensors.md").read_text("utf-8")
BLOCKS = {name: body for _, name, body in re.findall(r"```(python|sh) ?(\S*)\n(.*?)```", TEXT, re.DOTALL)}
"""What the document has in fences, by what is behind their language; the one without a name makes data."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One with the document's files, an `edgeflock` and a `python`."""
    for name, body in BLOCKS.items():
        if name.endswith(".py"):
            (tmp_path / name).write_text(body)
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name, command in (("python", ""), ("edgeflock", "-m edgeflock")):
        (binaries / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n')
        (binaries / name).chmod(0o755)
    return tmp_path


@asynccontextmanager
async def running(folder: Path, port: int, name: str) -> AsyncIterator[Process]:
    """A block's commands, with what a reader has on PATH, and a free port in the place of the usual one."""
    text = BLOCKS[name].replace("PYTHONPATH=.", "PYTHONPATH=.:$PYTHONPATH")
    environment = os.environ | {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        "COLUMNS": "200",
        "EDGEFLOCK_SERVER__PORT": str(port),
        "EDGEFLOCK_CLIENT__SERVER": f"http://127.0.0.1:{port}",
    }
    process = await asyncio.create_subprocess_exec(
        *("sh", "-ec", text),
        cwd=folder,
        env=environment,
        stdout=PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            os.killpg(process.pid, 9)
        await process.communicate()  # to the end of its pipe, which the shell's processes have, too


async def output(folder: Path, port: int, name: str) -> str:
    async with running(folder, port, name) as process:
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode()


@pytest.mark.slow
async def test_a_sensor_trains_a_model(folder: Path) -> None:
    port = lasting()
    await output(folder, port, "")
    async with running(folder, port, "server") as server:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                assert server.returncode is None, "the server did not start"
                await asyncio.sleep(0.1)
                continue
            writer.close()
            break
        reported = await output(folder, port, "client")
        assert re.search(r"8 updates from \d+ samples", reported), reported
        status = await output(folder, port, "status")
        while "at version 8" not in status:  # which is evaluated last
            status = await output(folder, port, "status")
    assert "machine-1" in status
    accuracy = re.search(r"accuracy ([\d.]+)%", status)
    assert accuracy is not None, status
    assert float(accuracy[1]) > 90, status


async def test_a_generator_of_ones_own(folder: Path) -> None:
    source = open_source(f"python:{folder}/my.py:readings?level=0.9")
    chunk = await anext(source)
    await source.aclose()
    assert chunk.x.shape[1:] == (2,)
    assert set(chunk.y.tolist()) <= {0, 1}


async def test_a_line_publishes(folder: Path) -> None:
    pytest.importorskip("aiomqtt", reason="aiomqtt is not installed")
    async with Mosquitto(folder) as broker:
        source = open_source(f"mqtt://127.0.0.1:{broker.port}/sensors/#")
        first: asyncio.Future[StreamChunk] = asyncio.ensure_future(anext(source))
        text = BLOCKS["publish"]
        BLOCKS["publish at once"] = text.replace("qos=1", f"qos=1, port={broker.port}")
        while not first.done():
            await output(folder, 0, "publish at once")
            await asyncio.wait([first], timeout=0.1)
        chunk = first.result()
        await source.aclose()
    assert (chunk.y.tolist()[:1], chunk.keys[:1]) == ([0], ("r-17",))


async def test_the_table_and_the_halves_are_read_as_it_says(folder: Path) -> None:
    (uri,) = re.findall(r"    (csv:\S+)", TEXT)
    rows = "time,temperature,vibration,state\nnoon,1.5,-0.5,running\nlater,-1,0,idle\n"
    (folder / "readings.csv").write_text(rows)
    source = open_source(uri.replace("readings.csv", str(folder / "readings.csv")))
    chunk = await anext(source)
    await source.aclose()
    assert (chunk.x.tolist(), chunk.y.tolist()) == ([[1.5, -0.5], [-1, 0]], [1, 0])
    *_, halves = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    (folder / "halves").write_text(halves)
    assert [json.loads(line)["key"] for line in halves.splitlines()] == ["r-17"] * 2
    tally = Skipped()
    (chunk,) = [
        chunk async for chunk in open_source(f"python:{__name__}:halves?path={folder}/halves&join=300", tally)
    ]
    assert (chunk.y.tolist(), tally.total) == ([0], 0)


def halves(path: str) -> Iterator[object]:
    for line in Path(path).read_text().splitlines():
        yield json.loads(line)
