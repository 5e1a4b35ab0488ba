"""What a push costs by way of a server of several runs, against the same run on a server of its own.

    python -m benchmarks.several_runs [--turns 8] [--seconds 2]

16 devices push updates of P = 211,690 (c = .01, 4-bit values), by turns: directly, and through the server of
several runs. The CPU time by way of it is that of both processes. Prints JSON.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from benchmarks import load
from benchmarks.plain import EXACT
from benchmarks.updates import random_update, record_update
from edgeflock.papers.machine import machine
from edgeflock.shared.settings.config import parse

DEVICES, LAG = 16, 100

SETTINGS = (
    "server.open=true",
    "model.data=",
    "model.module=edgeflock.client.zoo:PaperCNN",
    "model.input=[1,28,28]",
    "coordination.learning_rate=1e-3",
    "evaluation.every=3600",
    *EXACT,
)


class Processes(NamedTuple):
    """Several processes whose CPU time is one sum."""

    parts: tuple[psutil.Process, ...]

    def cpu_times(self) -> Any:
        times = [one.cpu_times() for one in self.parts]
        return type(times[0])(*(sum(values) for values in zip(*times, strict=True)))


@asynccontextmanager
async def server(*arguments: str) -> AsyncIterator[tuple[int, psutil.Process]]:
    """(port, process) of `edgeflock server`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "edgeflock", "server", *arguments, "--json", "--log-level", "error"),
        *("--set", "server.port=0"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    try:
        while not (line := await process.stdout.readline()).startswith(b'{"url"'):
            assert line, "the server has ended"
        yield int(json.loads(line)["url"].rpartition(":")[2]), psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()


async def compare(turns: int, seconds: float) -> dict[str, Any]:
    random = np.random.default_rng(0)
    sizes = {
        "c=.01": [random_update(load.PAPER_CNN, 0.01, "codebook4", random) for _ in range(64)],
        "record, model in the receipt": [record_update(load.PAPER_CNN, random) for _ in range(64)],
    }
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "runs"
        folder.mkdir()
        sections = parse(overrides=SETTINGS).model_dump(exclude_unset=True)
        (folder / "a.toml").write_text("".join(_toml(name, keys) for name, keys in sections.items()))
        options = [part for setting in SETTINGS for part in ("--set", setting)]
        direct_folder = f"server.directory={place}/direct"
        async with server(*options, "--set", direct_folder) as direct, server(str(folder)) as front:
            while not (run := front[1].children()):  # noqa: ASYNC110  # the kernel has no event for it
                await asyncio.sleep(0.1)
            through = front[0], Processes((front[1], run[0]))
            await _wait_until_ready(front[0])
            for name, updates in sizes.items():
                pairs = []
                for _ in range(turns):
                    pairs.append(
                        (
                            await load.measure(direct, updates, DEVICES, seconds, lag=LAG),
                            await load.measure(
                                through,
                                updates,
                                DEVICES,
                                seconds,
                                lag=LAG,
                                path="/v1/runs/a",
                            ),
                        )
                    )
                results[name] = {
                    "direct": _medians([one for one, _ in pairs]),
                    "through": _medians([one for _, one in pairs]),
                    "cpu_ratio": statistics.median(b.cpu_microseconds / a.cpu_microseconds for a, b in pairs),
                    "rate_ratio": statistics.median(b.per_second / a.per_second for a, b in pairs),
                }
            results["rss_mb"] = round(front[1].memory_info().rss / 1e6, 1)
    return {"machine": machine(), "load": os.getloadavg()[0], "turns": turns, **results}


def _medians(measured: list[load.Measured]) -> dict[str, float]:
    return {
        "pushes_per_second": round(statistics.median(one.per_second for one in measured), 1),
        "cpu_microseconds": round(statistics.median(one.cpu_microseconds for one in measured), 1),
    }


def _toml(name: str, keys: dict[str, Any]) -> str:
    return f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())


async def _wait_until_ready(port: int) -> None:
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /v1/runs/a/readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await reader.read(12)
        writer.close()
        if answer.endswith(b"200"):
            return
        await asyncio.sleep(0.2)  # its process loads torch


if __name__ == "__main__":
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--turns", type=int, default=8)
    reader.add_argument("--seconds", type=float, default=2.0)
    asked = reader.parse_args()
    print(json.dumps(asyncio.run(compare(asked.turns, asked.seconds)), indent=2))
