"""What Flower's runtime costs, with and without Edgeflock: `python -m benchmarks.flower bytes`.

Or `straggler`, or `native`.
Real SuperLinks and SuperNodes on this machine; Flower's bytes are counted between node and SuperLink.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil

from benchmarks.flower_deployment import Deployment, free_port
from benchmarks.plain import FOUR_BITS

APP = Path(__file__).parent / "flower-app"


@dataclass
class Counter:
    """A TCP proxy that counts, from the node's side."""

    up: int = 0
    down: int = 0


@asynccontextmanager
async def counting(target: int) -> AsyncIterator[tuple[int, Counter]]:
    """(port, bytes that went through it) of a proxy in front of `target`."""
    counter = Counter()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, up: bool) -> None:
        with suppress(OSError):
            while chunk := await reader.read(1 << 16):
                if up:
                    counter.up += len(chunk)
                else:
                    counter.down += len(chunk)
                writer.write(chunk)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(pump(reader, back, True), pump(there, writer, False))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], counter
    finally:
        server.close()


async def train(deployed: Deployment, **config: object) -> list[dict[str, float]]:
    """Run the app: a note of each round."""
    report = deployed.home / f"report-{time.monotonic_ns()}"
    pairs = {**config, "report": str(report)}
    text = " ".join(f"{k.replace('_', '-')}={json.dumps(v)}" for k, v in pairs.items())
    run = await deployed.run(APP, text)
    with suppress(AssertionError):
        await run.until("Final results|_Reached")
    await run.process.wait() if run.process.returncode is not None else await deployed.kill(run.process)
    if not report.exists():
        raise SystemExit(f"the run left no report:\n{run.log}")
    return [json.loads(line) for line in report.read_text().splitlines()]


@asynccontextmanager
async def deployment() -> AsyncIterator[Deployment]:
    with tempfile.TemporaryDirectory() as home:
        deployed = Deployment(Path(home))
        try:
            await deployed.superlink()
            yield deployed
        finally:
            await deployed.close()


async def count_bytes(updates: int) -> None:
    """Bytes a round trip of 211,690 parameters, dense and through the mod."""
    print("| reply | up | down | seconds, median |\n|---|--:|--:|--:|")
    async with deployment() as deployed, counting(deployed.port) as (port, counter):
        await deployed.supernode(0, 1, port=port)
        for name, mod, select in (("dense", 0, 1.0), ("mod, c = .1", 1, 0.1), ("mod, c = .01", 1, 0.01)):
            before = counter.up, counter.down
            notes = await train(deployed, job="noise", nodes=1, rounds=updates, mod=mod, select=select)
            up, down = (counter.up - before[0]) / updates, (counter.down - before[1]) / updates
            print(f"| {name} | {up:,.0f} | {down:,.0f} | {_between(notes):.1f} |", flush=True)


def _between(notes: list[dict[str, float]]) -> float:
    """Median seconds between rounds."""
    times = [note["seconds"] for note in notes]
    return statistics.median(after - before for before, after in zip(times[1:], times[2:], strict=False))


async def race(target: float, fast: float, slow: float) -> None:
    """FedAvg against AsyncAdaComp: three nodes take `fast` seconds to train, one takes `slow`."""
    print("| strategy | seconds to target | rounds or updates | a minute |\n|---|--:|--:|--:|")
    async with deployment() as deployed:
        for node in range(4):
            await deployed.supernode(node, 4, seconds=slow if node == 3 else fast)
        for strategy in ("AsyncAdaComp", "FedAvg"):
            notes = await train(deployed, strategy=strategy, nodes=4, rounds=500, target=target)
            last = notes[-1]
            updates = last["round"] * (4 if strategy == "FedAvg" else 1)
            rate = 60 * updates / last["seconds"]
            print(
                f"| {strategy} | {last['seconds']:.0f} | {last['round']} | {rate:.1f} updates |", flush=True
            )
            for note in notes:
                print(f"    {note['seconds']:6.1f} s  {note['accuracy']:.3f}")


def _resident(pid: int) -> float:
    """MB that a process and its children hold, shared pages divided among their users."""
    process = psutil.Process(pid)
    return sum(float(p.memory_full_info().pss) for p in [process, *process.children(recursive=True)]) / 1e6


async def against_native(updates: int, seconds: float) -> None:
    """DigitsCNN, one step of ten samples an update, c = .01, two devices: Flower, then our own server."""
    print("| runtime | updates/s | seconds a round trip | client, MB |\n|---|--:|--:|--:|")
    async with deployment() as deployed:
        nodes = [await deployed.supernode(part, 2) for part in range(2)]
        await asyncio.sleep(10)
        idle = statistics.mean(_resident(node.pid) for node in nodes)
        notes = await train(deployed, job="cnn", nodes=2, rounds=updates, mod=1)
        rate = (len(notes) - 2) / (notes[-1]["seconds"] - notes[1]["seconds"])
        print(f"| Flower | {rate:.2f} | {2 / rate:.2f} | {idle:.0f}, idle |", flush=True)
        for backend in ("onnx", "torch"):
            await native(deployed, backend, seconds)


async def native(deployed: Deployment, backend: str, seconds: float) -> None:
    """The same with `edgeflock server` and two `edgeflock client`s."""
    port = str(free_port())
    settings = {"port": port, "directory": deployed.home / backend, "open": "true"}
    options = [*FOUR_BITS, *(f"server.{key}={value}" for key, value in settings.items())]
    server = await deployed.spawn("edgeflock", "server", *(f"--set={option}" for option in options))
    where = (f"--server=http://127.0.0.1:{port}", "--data=digits:", f"--backend={backend}")
    clients = [await deployed.spawn("edgeflock", "client", *where, f"--name=pi-{part}") for part in range(2)]
    while not await _version(port):  # noqa: ASYNC110
        await asyncio.sleep(0.5)
    before, at = await _version(port), time.monotonic()
    await asyncio.sleep(seconds)
    rate = (await _version(port) - before) / (time.monotonic() - at)
    busy = statistics.mean(_resident(client.pid) for client in clients)
    print(f"| native, {backend} | {rate:.0f} | {2 / rate:.4f} | {busy:.0f}, at work |", flush=True)
    for process in (*clients, server):
        await deployed.kill(process)


async def _version(port: str) -> int:
    async with aiohttp.ClientSession() as session:
        with suppress(aiohttp.ClientConnectionError):  # it does not listen yet
            async with session.get(f"http://127.0.0.1:{port}/v1/status") as answer:
                return int((await answer.json())["version"])
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("bytes", "straggler", "native"))
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--target", type=float, default=0.9)
    parser.add_argument("--fast", type=float, default=4.0)
    parser.add_argument("--slow", type=float, default=40.0)
    options = parser.parse_args()
    if options.what == "bytes":
        asyncio.run(count_bytes(options.updates))
    elif options.what == "straggler":
        asyncio.run(race(options.target, options.fast, options.slow))
    else:
        asyncio.run(against_native(options.updates, 20))


if __name__ == "__main__":
    main()
