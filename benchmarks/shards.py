"""What it costs to keep a model in shards, and what it saves: against one process, interleaved.

    python -m benchmarks.shards [--parameters N ...] [--shards N] [--entries K] [--rounds R] [--groups G]

For each size two servers without sockets, each in a process of its own: all of the model in it, or in shards
of a Ray of this machine's. In turn each takes groups of 64 sparse updates (AdaComp, window 64, with the
averaged model), durable; then it is asked for a difference and for all of the model, makes a snapshot, and
loses a shard. Prints JSON, a line a size.
"""

import argparse
import json
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from edgeflock.papers.machine import machine
from edgeflock.server.coordination import Push
from edgeflock.server.ledger import claim_run
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.errors import Refused
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Update
from edgeflock.shared.settings.config import parse

GROUP = 64
WINDOW = 64


def layout_of(size: int) -> Layout:
    """One tensor."""
    return Layout.from_shapes([("weight", (size,))])


def made(layout: Layout, entries: int, random: np.random.Generator) -> Update:
    """An update of about so many entries, of four bits a value, anywhere."""
    where = np.unique(random.integers(0, layout.size, entries))
    delta = random.standard_normal(where.size).astype(np.float32)
    octets = values.encode(delta, layout.counts(where), "codebook4")
    indices = sparse.encode(where, layout.size)
    mode = values.CODINGS["codebook4"].mode
    return Update(1, 0, sparse.GOLOMB, mode, where.size, indices, octets, 0.5, 10, False)


class Server:
    """An engine, and its processes."""

    def __init__(self, directory: Path, size: int, shards: int, entries: int) -> None:
        overrides = [
            "journal.snapshot_every=1000000", f"coordination.window={WINDOW}", "downlink.mode=exact",
            "coordination.learning_rate=1e-3", f"scale.shards={shards}",
        ]  # fmt: skip
        layout, random = layout_of(size), np.random.default_rng(0)
        theta = np.zeros(size, np.float32)
        self.claim = claim_run(directory, "directory", layout, theta, parse(overrides=overrides))
        self.engine = self.claim.__enter__().engine
        del theta
        self.updates = [made(layout, entries, random) for _ in range(GROUP)]
        self.device = self.engine.device_id("one")
        self.sequence = 0
        self.me = psutil.Process()
        self.places = np.linspace(0, size - 1, 64).astype(np.int64)
        """Some in every shard."""

    def shards(self) -> list[psutil.Process]:
        return [
            psutil.Process(shard.process) for shard in self.engine.parameters.store.vectors.shard_statuses
        ]

    def push(self, groups: int) -> dict[str, float]:
        """Microseconds an update: time, and processor time here and in all shards together."""
        shards = self.shards()
        self._wait()
        before, own = [_cpu(shard) for shard in shards], _cpu(self.me)
        began = time.perf_counter()
        for _ in range(groups):
            self.group()
        self._wait()
        wall = time.perf_counter() - began
        elsewhere = sum(_cpu(shard) - since for shard, since in zip(shards, before, strict=True))
        count = groups * GROUP / 1e6
        return {"wall": wall / count, "server": (_cpu(self.me) - own) / count, "shards": elsewhere / count}

    def _wait(self) -> None:
        """Until nothing is under way to any shard."""
        self.engine.parameters.store[self.places]

    def group(self) -> None:
        version, pushes = self.engine.parameters.version, []
        for number, update in enumerate(self.updates):
            self.sequence += 1
            base = max(0, version + number - WINDOW // 2)
            sent = replace(update, sequence=self.sequence, base=base)
            pushes.append(Push(self.device, 0.0, sent, wire.encode(sent)))
        for _, answer in self.engine.commit(pushes):
            assert not isinstance(answer, Refused), answer

    def memory(self) -> dict[str, float]:
        """MB that are each process's own, and all of Ray's besides."""
        shards = [shard.memory_full_info().uss / 1e6 for shard in self.shards()]
        pids = {shard.process for shard in self.engine.parameters.store.vectors.shard_statuses}
        others = [child for child in self.me.children(recursive=True) if child.pid not in pids]
        peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
        return {
            "server": round(self.me.memory_full_info().uss / 1e6),
            "server_peak": round(int(peak.split()[1]) / 1e3),
            "largest_shard": round(max(shards, default=0)),
            "shards": round(sum(shards)),
            "rest_of_ray": round(sum(child.memory_full_info().uss for child in others) / 1e6),
        }

    def timed(self, name: str) -> float:
        """Milliseconds."""
        version = self.engine.parameters.version
        actions: dict[str, Callable[[], object]] = {
            "difference": lambda: self.engine.outlet.model(version - 8),
            "whole": lambda: self.engine.theta(),
            "snapshot": self.engine.steering.checkpoint,
            "restore": self._restored,
        }
        began = time.perf_counter()
        actions[name]()
        return round((time.perf_counter() - began) * 1e3, 1)

    def _restored(self) -> None:
        """After a kill, until a model can be read again."""
        standing = self.engine.parameters.store.vectors.shard_statuses
        if standing:
            os.kill(standing[0].process, signal.SIGKILL)
            while not self.engine.parameters.store.restorations:
                self._wait()


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _serve(pipe: Connection, size: int, shards: int, entries: int) -> None:
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory:
        server = Server(Path(directory), size, shards, entries)
        pipe.send("ready")
        while (asked := pipe.recv()) is not None:
            name, *reported = asked
            pipe.send(getattr(server, name)(*reported))
        server.claim.__exit__(None, None, None)
        pipe.send("over")


def compared(size: int, shards: int, entries: int, rounds: int, groups: int) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    pipes, children = [], []
    for count in (0, shards):
        ours, theirs = context.Pipe()
        child = context.Process(target=_serve, args=(theirs, size, count, entries))
        child.start()
        theirs.close()
        pipes.append(ours)
        children.append(child)

    def ask(*asked: object) -> list[Any]:
        """One after the other."""
        answers = []
        for pipe in pipes:
            pipe.send(asked)
            answers.append(pipe.recv())
        return answers

    for pipe in pipes:
        assert pipe.recv() == "ready"
    ask("push", 1)
    taken = [ask("push", groups) for _ in range(rounds)]
    middle = [
        {key: round(statistics.median(turn[side][key] for turn in taken)) for key in taken[0][side]}
        for side in (0, 1)
    ]
    result = {
        "parameters": size,
        "entries": entries,
        "shards": shards,
        "us_an_update": middle,
        "wall_ratio": round(statistics.median(turn[1]["wall"] / turn[0]["wall"] for turn in taken), 2),
        "server_cpu_ratio": round(
            statistics.median(turn[1]["server"] / turn[0]["server"] for turn in taken), 2
        ),
        "memory_mb": ask("memory"),
    }
    for name in ("difference", "whole", "snapshot"):
        result[f"{name}_ms"] = ask("timed", name)
    ask("push", groups)
    result["restore_ms"] = ask("timed", "restore")[1]
    result["memory_after_mb"] = ask("memory")
    for pipe, child in zip(pipes, children, strict=True):
        pipe.send(None)
        assert pipe.recv() == "over"
        child.join()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--parameters", type=int, nargs="+", default=[211_690, 2_000_000, 20_000_000])
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--entries", type=int, default=0, help="of an update; 0: the root of the parameters")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--groups", type=int, default=4, help="of 64 updates, a round and server")
    chosen = parser.parse_args()
    for size in chosen.parameters:
        entries = chosen.entries or round(size**0.5)
        print(json.dumps(compared(size, chosen.shards, entries, chosen.rounds, chosen.groups)), flush=True)
    print(json.dumps(machine()), file=sys.stderr)


if __name__ == "__main__":
    main()
