"""Rounds of tasks with stragglers: eight client processes on loopback, two of them slowed tenfold.

    python -m benchmarks.stragglers [--rounds 30] [--distinct 0]

A server and its devices, each a process; device j holds shards j, j + 1, j + 2 of eight. Two devices are
stopped (SIGSTOP) for nine tenths of each half second. For r = 1 and r = 3: seconds a round, with and
without them, and the server's duplicates. Each time is that of the rounds after the first five. Prints a
line of JSON for each.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from edgeflock.shared.data import datasets

DEVICES, SLOWED, HOLDS = 8, 2, 3
WARM_UP = 5
"""Rounds that are not counted: devices join, and speeds are learned."""

PERIOD, AWAKE = 0.5, 0.1
"""Seconds of a slowed device's cycle, and the part of it that it runs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--distinct", type=int, default=0, help="shards that end a round; 0: all eight")
    parser.add_argument("--local-steps", type=int, default=40)
    options = parser.parse_args()
    for tasks in (3, 1):
        for slowed in (0, SLOWED):
            rounds = options.rounds if tasks > 1 or not slowed else max(6, options.rounds // 5)
            with tempfile.TemporaryDirectory() as folder:
                print(json.dumps(measured(Path(folder), tasks, slowed, rounds, options)), flush=True)


def measured(
    folder: Path, tasks: int, slowed: int, rounds: int, options: argparse.Namespace
) -> dict[str, Any]:
    data = datasets.load("digits:", "train")
    for shard in range(DEVICES):
        part = slice(shard, None, DEVICES)
        np.savez(
            folder / f"{shard}.npz",
            x_train=data.x[part],
            y_train=data.y[part],
            x_test=data.x[:8],
            y_test=data.y[:8],
        )
    settings = {
        "server.directory": folder / "run",
        "server.port": 0,
        "server.open": "true",
        "local.steps": options.local_steps,
        "coordination.mode": "tasks",
        "coordination.deadline": 600,
        "coordination.tasks": tasks,
        "coordination.distinct": options.distinct,
        "evaluation.every": 3600,
    }
    with server_of(settings) as port:
        names = [f"device-{number}" for number in range(DEVICES)]
        devices = [client(port, name, folder, number, tasks) for number, name in enumerate(names)]
        over = threading.Event()
        slowing = [threading.Thread(target=slow, args=(process, over)) for process in devices[:slowed]]
        try:
            each = options.distinct or DEVICES
            wait(port, 1)
            for thread in slowing:
                thread.start()
            wait(port, WARM_UP * each)
            began, first = time.monotonic(), status(port)["version"]
            wait(port, first + rounds * each)
            seconds = time.monotonic() - began
            end = status(port)
            return {
                "r": tasks,
                "distinct": each,
                "slowed": slowed,
                "seconds a round": round(seconds / ((end["version"] - first) / each), 3),
                "rounds": (end["version"] - first) // each,
                "duplicates": end["tasks"]["duplicates"],
            }
        finally:
            over.set()
            for thread in slowing:
                if thread.ident:
                    thread.join()
            for process in devices:
                process.kill()
            for process in devices:
                process.wait()


def client(port: int, name: str, folder: Path, number: int, tasks: int) -> subprocess.Popen[bytes]:
    held = [(number + step) % DEVICES for step in range(HOLDS if tasks > 1 else 1)]
    shards = ",".join(f"shard-{shard}=npz:{folder}/{shard}.npz" for shard in held)
    values = {"server": f"http://127.0.0.1:{port}", "name": name, "shards": shards, "health": "false"}
    arguments = [argument for key, value in values.items() for argument in ("--set", f"client.{key}={value}")]
    return subprocess.Popen([sys.executable, "-m", "edgeflock", "client", *arguments])


def slow(process: subprocess.Popen[bytes], over: threading.Event) -> None:
    """Let the process run for a tenth of the time."""
    while not over.is_set():
        os.kill(process.pid, signal.SIGSTOP)
        over.wait(PERIOD * (1 - AWAKE))
        os.kill(process.pid, signal.SIGCONT)
        over.wait(PERIOD * AWAKE)


@contextmanager
def server_of(settings: dict[str, object]) -> Iterator[int]:
    arguments = [argument for key, value in settings.items() for argument in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "edgeflock", "server", "--json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            reported = process.stdout.readline()
            if not reported:
                raise SystemExit("the server did not start")
            yield int(json.loads(reported)["url"].rpartition(":")[2])
        finally:
            process.terminate()


def status(port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/status", timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def wait(port: int, version: int) -> None:
    """Until the model is there; five minutes at most."""
    until = time.monotonic() + 300
    while status(port)["version"] < version:
        if time.monotonic() > until:
            raise SystemExit(f"no version {version} in five minutes")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
