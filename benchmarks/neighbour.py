"""What a training client leaves to others: a core that it shares, a core and a line with a cap.

    python -m benchmarks.neighbour [--seconds 20] [--core 0] [--figures beside cpu bandwidth]

A server and one client on loopback, each a process: DigitsCNN of the digits for the core, the paper's CNN on
MNIST, a fifth of each gradient sent, for the line. The client, and the program beside it, are pinned to
`--core`; the server is not. All are in one session, so that priorities count (docs/neighbour.md). Prints a
line of JSON for each of

    beside      what a fixed CPU-bound task keeps of its speed beside a client that trains without a cap: with
                the client stopped and running in turns, for client.low_priority on and off
    cpu         of a core that the client takes with client.cpu = 25%, by its own processor time, at the usual
                priority, so that nothing else holds it back
    bandwidth   bytes a second that pass its relay, both ways together, with client.bandwidth = 50kB/s
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.stragglers import server_of, status, wait
from tests.proxy import Proxy, proxying

TURN = 0.5
"""Seconds of a turn of the program beside the client."""

_MNIST = f"npz:{os.environ.get('EDGEFLOCK_DATA', '.')}/mnist.npz"

_CORES = {
    "server.open": "true",
    "server.port": 0,
    "evaluation.every": 3600,
    "local.steps": 20,  # so that the client computes, rather than wait for its server
    "model.module": "edgeflock.client.zoo:DigitsCNN",
}
_LINES = {
    **_CORES,
    "local.steps": 1,
    "model.module": "edgeflock.client.zoo:PaperCNN",
    "model.data": _MNIST,
    "compression.select": 0.2,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each figure")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--figures", nargs="+", default=["beside", "cpu", "bandwidth"])
    options = parser.parse_args()
    for gentle in (True, False) if "beside" in options.figures else ():
        with training(_CORES, options.core, f"low_priority={str(gentle).lower()}") as (client, _):
            kept = beside(client, options.core, options.seconds)
            print(json.dumps({"figure": "beside", "gentle": gentle, **kept}), flush=True)
    if "cpu" in options.figures:
        with training(_CORES, options.core, "low_priority=false", "cpu=25%") as (client, _):
            share = taken(lambda: processor_seconds(client.pid), options.seconds)
            print(json.dumps({"figure": "cpu", "cap": 0.25, **share}), flush=True)
    if "bandwidth" in options.figures:
        with training(_LINES, options.core, "bandwidth=50kB/s", f"data={_MNIST}") as (client, proxy):
            rate = taken(lambda: proxy.upstream + proxy.downstream, options.seconds)
            print(json.dumps({"figure": "bandwidth", "cap": 50_000, **rate}), flush=True)


@contextmanager
def training(
    settings: dict[str, object], core: int, *of_client: str
) -> Iterator[tuple[subprocess.Popen[bytes], Proxy]]:
    """(a client that has trained for a while, the relay between it and its server)."""
    with (
        tempfile.TemporaryDirectory() as folder,
        server_of({**settings, "server.directory": Path(folder) / "run"}) as port,
        relay(port) as proxy,
    ):
        given = {"server": f"http://127.0.0.1:{proxy.port}", "name": "laptop", "directory": folder}
        flags = [f"client.{entry}" for entry in (*(f"{k}={v}" for k, v in given.items()), *of_client)]
        command = [sys.executable, "-m", "edgeflock", "client", "--log-level", "warning"]
        command += [part for flag in flags for part in ("--set", flag)]
        with subprocess.Popen(command, preexec_fn=lambda: os.sched_setaffinity(0, {core})) as client:
            try:
                wait(port, 3)
                yield client, proxy
                print(f"version {status(port)['version']}", file=sys.stderr)
            finally:
                client.send_signal(signal.SIGCONT)
                client.kill()


@contextmanager
def relay(port: int) -> Iterator[Proxy]:
    """Counts what passes, in a thread with an event loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    opened = proxying(port)
    try:
        yield asyncio.run_coroutine_threadsafe(opened.__aenter__(), loop).result()
        with suppress(asyncio.CancelledError):
            asyncio.run_coroutine_threadsafe(opened.__aexit__(None, None, None), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def beside(client: subprocess.Popen[bytes], core: int, seconds: float) -> dict[str, Any]:
    """What a CPU-bound task on the same core keeps of its speed, in turns with the client stopped."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    alone, together = Turns(client.pid), Turns(client.pid)
    ratios = []
    try:
        for _ in range(max(3, round(seconds / (2 * TURN)))):
            client.send_signal(signal.SIGSTOP)
            before = alone.take()
            client.send_signal(signal.SIGCONT)
            ratios.append(together.take() / before)
    finally:
        os.sched_setaffinity(0, own)
    share = together.others / (together.own + together.others)
    return {
        "keeps": round((1 - share) * (together.done / together.own) / (alone.done / alone.own), 3),
        "by the clock, median": round(statistics.median(ratios), 3),
        "client's share": round(share, 4),
        "turns": len(ratios),
    }


class Turns:
    """A fixed piece of work, repeated, and its processor time on a core that it shares with the client.

    What counts is how both share the core, whatever else runs, and what a second of it is worth to the work.
    """

    def __init__(self, client: int) -> None:
        self._client = client
        self.done = 0
        self.own = self.others = 0.0
        """Processor seconds, and the client's."""

    def take(self) -> float:
        """One turn: rounds a second."""
        done, began = 0, time.perf_counter()
        own, others = time.process_time(), processor_seconds(self._client)
        while (passed := time.perf_counter() - began) < TURN:
            sum(number * number for number in range(2000))
            done += 1
        self.own += time.process_time() - own
        self.others += processor_seconds(self._client) - others
        self.done += done
        return done / passed


def taken(count: Callable[[], float], seconds: float) -> dict[str, Any]:
    """How `count` grows a second: over all of the time, and in the busiest second."""
    samples = [(time.perf_counter(), count())]
    while samples[-1][0] - samples[0][0] < seconds:
        time.sleep(0.1)
        samples.append((time.perf_counter(), count()))
    (began, first), (ended, last) = samples[0], samples[-1]
    within = [
        (then - now, after - before)
        for (now, before), (then, after) in zip(samples, samples[10:], strict=False)
    ]
    busiest = max(amount / passed for passed, amount in within)
    return {
        "mean": round((last - first) / (ended - began), 4),
        "busiest second": round(busiest, 4),
        "seconds": round(ended - began, 1),
    }


def processor_seconds(pid: int) -> float:
    """Of all threads of a process: Linux has a clock of it (CPUCLOCK_SCHED of `man clock_getcpuclockid`)."""
    return time.clock_gettime(~pid << 3 | 2)


if __name__ == "__main__":
    main()
