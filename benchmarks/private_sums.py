r"""Secure sums against plain rounds: accuracy, bytes and seconds of emulated fleets; and as processes.

    python -m benchmarks.private_sums fleet private 10 60 --drop 0.1 >> docs/results/private-sums.jsonl
    python -m benchmarks.private_sums fleet private 50 40 --bad 0.1 --set coordination.groups=5 \
        coordination.aggregate=median
    python -m benchmarks.private_sums round 100 38282
    python -m benchmarks.private_sums bonawitz 100 38282
    python -m benchmarks.private_sums processes [SETTING=VALUE ...]

In each round each device falls silent with a probability, at a step drawn at random, until the round is over.
Run from the repository's root. Seconds are of one process on one core, without gradients and evaluations.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

import numpy as np
import torch

from edgeflock.client.training.selector import LocalSteps
from edgeflock.client.training.sums import SumParticipant
from edgeflock.devices.emulation.config import parse
from edgeflock.devices.emulation.fleet import prepare, run_fleet
from edgeflock.devices.emulation.link import EmulatedLink
from edgeflock.server.monitoring.listeners import Callbacks
from edgeflock.shared.identity import new_key
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.protocol.messages import Receipt, SecureSum, Update
from edgeflock.shared.secure_sum.aggregator import Aggregator, check_keys
from edgeflock.shared.secure_sum.coordinates import Coordinates
from edgeflock.shared.secure_sum.masks import Vector, VectorShape
from edgeflock.shared.secure_sum.messages import SumStep
from edgeflock.shared.secure_sum.participant import RoundParticipant, RoundTerms
from edgeflock.shared.secure_sum.quantiser import Contribution, Quantiser

T = TypeVar("T")

DEADLINE = 5
"""Virtual seconds of a step."""

USUAL = f"""
local.steps=10 local.rate=0.1 coordination.learning_rate=0.1 coordination.deadline={DEADLINE}
coordination.average=0 compression.feedback=1
"""
ARMS = {
    "private": "coordination.mode=private",
    "private-5%": "coordination.mode=private compression.select=0.05",
    "private-2-bits": "coordination.mode=private coordination.bits=2",
    "private-3-bits": "coordination.mode=private coordination.bits=3",
    "private-8-bits": "coordination.mode=private coordination.bits=8",
    "rounds": "coordination.mode=rounds",
    "dense": "coordination.mode=rounds compression.select=1 compression.values=f32 downlink.mode=exact",
}
"""Settings, beside USUAL. dense is FedAvg with all gradients in float32."""


def run_arm(
    arm: str,
    devices: int,
    rounds: int,
    drop: float,
    seed: int,
    bad: float = 0.0,
    large: bool = False,
    more: Sequence[str] = (),
) -> dict[str, object]:
    """Run a fleet; return its figures. The run ends after `rounds` rounds of the devices that stay.

    `bad` is the part of devices that do as `spoiling` says. `more` are settings beside those of the arm.
    """
    torch.set_num_threads(1)
    each = 1 if arm.startswith("private") else devices
    fleet = f"end.updates={rounds * each} fleet.devices={devices} fleet.evaluate_every={2 * each}"
    file = parse("", arm, [*f"{USUAL} {ARMS[arm]} {fleet}".split(), *more])
    curve: list[Evaluation] = []
    random = np.random.default_rng(seed)
    with (
        dropping(drop, random) as drops,
        spoiling(round(bad * devices), large),
    ):
        result = run_fleet(prepare(file), seed, Callbacks(on_evaluated=curve.append))
        seconds = result.total_s - result.gradient_s - result.evaluation_s
    total = curve[-1]
    return {
        "arm": arm, "devices": devices, "drop": drop, "bad": bad, "large": large, "settings": [*more],
        "seed": seed, "rounds": rounds, "ended": result.ended,
        "dropped": len(drops), "accuracy": [round(one.accuracy or 0, 4) for one in curve],
        "rounds_to_90": next((2 * n for n, one in enumerate(curve) if (one.accuracy or 0) >= 0.9), None),
        "rounds_to_95": next((2 * n for n, one in enumerate(curve) if (one.accuracy or 0) >= 0.95), None),
        "up_kB": round(total.ingress / rounds / devices / 1e3, 2),
        "down_kB": round(total.egress / rounds / devices / 1e3, 2),
        "seconds_a_round": round(seconds / rounds, 3),
    }  # fmt: skip


@contextmanager
def spoiling(count: int, large: bool = False) -> Iterator[None]:
    """Let `count` devices of private runs add the opposite of their gradient, ten times as large.

    The code of the device clips it. With `large`, they add a quarter of the modulus to each entry instead.
    """
    known: dict[int, int] = {}
    hostile: set[int] = set()
    plain, mask = SumParticipant._take_part, RoundParticipant.mask

    async def take_part(self: SumParticipant, one: RoundParticipant, steps: LocalSteps) -> int:
        if known.setdefault(id(self), len(known)) < count:
            hostile.add(id(one))
            steps = replace(steps, gradient=-10 * steps.gradient)
        try:
            return await plain(self, one, steps)
        finally:
            hostile.discard(id(one))

    def add(self: RoundParticipant, answer: bytes, vector: Vector, shape: VectorShape) -> bytes:
        if large and id(self) in hostile:
            vector = vector.copy()
            vector[: shape.entries] = 1 << (shape.width - 2)
        return mask(self, answer, vector, shape)

    with patch.object(SumParticipant, "_take_part", take_part), patch.object(RoundParticipant, "mask", add):
        yield


@contextmanager
def dropping(drop: float, random: np.random.Generator) -> Iterator[list[int]]:
    """Let devices fall silent in the block. Yields the steps at which they did."""
    steps: list[int] = []
    plan: dict[int, int | None] = {}
    plain, update = EmulatedLink.sum, EmulatedLink.push

    async def sum(self: EmulatedLink, message: SecureSum) -> SecureSum:
        if message.step == 0:
            plan[id(self)] = int(random.integers(0, 5)) if random.random() < drop else None
        if plan[id(self)] == message.step:
            steps.append(message.step)
            await asyncio.sleep(1.5 * DEADLINE)
        return await plain(self, message)

    async def push(self: EmulatedLink, one: Update) -> Receipt:
        if random.random() < drop:
            steps.append(0)
            await asyncio.sleep(1.5 * DEADLINE)
        return await update(self, one)

    with patch.object(EmulatedLink, "sum", sum), patch.object(EmulatedLink, "push", push):
        yield steps


def time_round(devices: int, parameters: int, drop: float, fraction: float = 0.1) -> dict[str, object]:
    """Run a round without training. Return the processor seconds of a device and of the server."""
    layout = Layout.from_shapes([("w", (parameters,))])
    positions = Coordinates("run", parameters, fraction).choose(0)
    coder = Quantiser(layout, positions, 4, devices)
    terms = RoundTerms("run", 0, parameters, 1, 2 / 3, 3)
    random, ranges = np.random.default_rng(0), np.ones(1, np.float32)
    added = Contribution(random.standard_normal(positions.size).astype(np.float32), 100, 0)
    spent = {"device": 0.0, "server": 0.0}
    sent = received = 0

    def at(end: str, work: Callable[..., T], *arguments: object) -> T:
        began = time.process_time()
        result = work(*arguments)
        spent[end] += time.process_time() - began
        return result

    working = {
        number: at("device", RoundParticipant, terms, new_key(), os.urandom) for number in range(devices)
    }
    bodies = {number: at("device", one.advertise) for number, one in working.items()}
    keys = {number: at("server", check_keys, "run", body)[1] for number, body in bodies.items()}
    round = at("server", Aggregator, terms, keys, ranges, positions, coder.shape)
    for step in (SumStep.SHARES, SumStep.MASKED, SumStep.SIGNATURE, SumStep.SECRETS):
        for number in sorted(round.missing):
            if random.random() < drop / 4:
                continue
            one, answer = working[number], at("server", round.answer, number)
            if step == SumStep.MASKED:
                vector = at("device", coder.quantise, added, ranges, random)
                body = at("device", one.mask, answer, vector, coder.shape)
            else:
                names = {SumStep.SHARES: one.share, SumStep.SIGNATURE: one.sign, SumStep.SECRETS: one.reveal}
                body = at("device", names[step], answer)
            sent, received = sent + len(body), received + len(answer)
            at("server", round.receive, number, step, body)
        at("server", round.advance)
    return {
        "devices": devices, "parameters": parameters, "summed": len(round.summed),
        "device_seconds": round_to(spent["device"] / devices), "server_seconds": round_to(spent["server"]),
        "up_kB": round_to(sent / devices / 1e3), "down_kB": round_to(received / devices / 1e3),
    }  # fmt: skip


def round_to(number: float) -> float:
    return float(f"{number:.3g}")


def bonawitz_bytes(devices: int, parameters: int, bits: int = 16) -> dict[str, float]:
    """Return the bytes of a device in a dense round of Bonawitz et al., by the formula, up and down.

    Keys 2 x 32 and a signature of 64; for each other device two shares of 33 bytes, encrypted with 16 more; P
    integers of bits + log2 n bits; a signature; and a share for each device. Down: keys and signatures of
    all, the shares of all, a bitmap, their signatures, and the model in float32.
    """
    others = devices - 1
    width = bits + int(np.ceil(np.log2(devices)))
    up = 128 + 82 * others + parameters * width / 8 + 64 + 33 * devices
    down = 128 * others + 82 * others + devices / 8 + 64 * others + 4 * parameters
    return {"up_kB": round(up / 1e3, 2), "down_kB": round(down / 1e3, 2)}


class Processes:
    """A server and devices as processes, in a folder."""

    def __init__(self, folder: Path, settings: Sequence[str]) -> None:
        self._folder, self._settings = folder, settings
        self.port = 0

    def server(self) -> subprocess.Popen[bytes]:
        usual = f"server.open=true server.port={self.port} server.directory={self._folder}/run"
        return self._start("server", ["server", *self._sets([*usual.split(), *self._settings])])

    def device(self, number: int, devices: int) -> subprocess.Popen[bytes]:
        more = [f"client.directory={self._folder}/{number}", f"client.data=digits:?part={number}/{devices}"]
        url = ["--server", f"http://127.0.0.1:{self.port}", "--name", f"device-{number}"]
        backend = ["--backend", "torch" if number % 2 else "onnx"]
        return self._start(f"device-{number}", ["client", "train", *url, *backend, *self._sets(more)])

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()

    def versions(self) -> int:
        try:
            with closing(sqlite3.connect(f"file:{self._folder}/run/journal.sqlite?mode=ro", uri=True)) as db:
                return int(db.execute("SELECT count(*) FROM updates").fetchone()[0])
        except sqlite3.Error:
            return 0

    def wait(self, found: Callable[[], T], what: str, seconds: float = 300) -> T:
        """Wait until `found` returns something, and return that. Raises TimeoutError."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if result := found():
                return result
            time.sleep(0.1)
        raise TimeoutError(what)

    def sums(self, more: int, what: str) -> None:
        """Wait for so many more sums, and print how long it took."""
        began, before = time.monotonic(), self.versions()
        self.wait(lambda: self.versions() >= before + more, what)
        print(f"{what}: {more} more sums after {time.monotonic() - began:.1f} s", flush=True)

    def privacy(self) -> str:
        """What the server says of its privacy budget, and how many sums its journal has."""
        server = f"http://127.0.0.1:{self.port}"
        reported = subprocess.run(
            [sys.executable, "-m", "edgeflock", "status", server], capture_output=True, text=True, check=True
        )
        lines = [line for line in reported.stdout.splitlines() if "epsilon" in line] or ["no noise"]
        return f"{lines[0]}; {self.versions()} sums in the journal"

    def _sets(self, settings: Sequence[str]) -> list[str]:
        return [word for setting in settings for word in ("--set", setting)]

    def _start(self, name: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen([sys.executable, "-m", "edgeflock", *words], stdout=log, stderr=log)


def run_processes(folder: Path, more: Sequence[str] = (), devices: int = 6) -> None:
    """Six devices; two are killed (kill -9) in a round, one is stopped, and the server is killed as well.

    `more` are settings of the server, such as privacy.noise=1.
    """
    settings = (
        "coordination.mode=private coordination.threshold=0.5 coordination.deadline=8 local.steps=5 "
        "coordination.learning_rate=0.1 local.rate=0.1"
    )
    run = Processes(folder, [*settings.split(), *more])
    server = run.server()
    run.port = int(run.wait(lambda: re.findall(r"http://127\.0\.0\.1:(\d+)", run.log("server")), "server")[0])
    working = [run.device(number, devices) for number in range(1, devices + 1)]
    try:
        run.wait(lambda: run.log("server").count("joined device") == devices, "devices")
        run.sums(5, "all are here")
        for one in working[:2]:
            one.kill()
        run.sums(5, "two devices are killed")
        working[2].send_signal(signal.SIGSTOP)
        run.sums(3, "one device is stopped")
        working[2].send_signal(signal.SIGCONT)
        server.kill()
        server.wait()
        server = run.server()
        run.sums(5, "the server is killed and started again")
        print(run.privacy(), flush=True)
    finally:
        for one in (*working, server):
            one.terminate()
        for one in (*working, server):
            one.wait(300)
    pattern = r"(?:WARNING|INFO) \S+: (.*(?:sum|dropped out|round|left|killed).*)"
    for name in ("server", *(f"device-{number}" for number in range(1, devices + 1))):
        for line in dict.fromkeys(re.findall(pattern, run.log(name))):
            print(f"{name}: {line}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    fleet = commands.add_parser("fleet")
    fleet.add_argument("arm", choices=ARMS)
    fleet.add_argument("devices", type=int)
    fleet.add_argument("rounds", type=int)
    fleet.add_argument("--drop", type=float, default=0.0)
    fleet.add_argument("--seed", type=int, default=0)
    fleet.add_argument("--bad", type=float, default=0.0, help="part of the devices, of a private run")
    fleet.add_argument("--large", action="store_true", help="they add what no gradient has")
    fleet.add_argument("--set", nargs="*", default=[], help="settings beside those of the arm")
    formula = commands.add_parser("bonawitz")
    formula.add_argument("devices", type=int)
    formula.add_argument("parameters", type=int)
    timed = commands.add_parser("round")
    timed.add_argument("devices", type=int)
    timed.add_argument("parameters", type=int)
    timed.add_argument("--drop", type=float, default=0.1)
    killed = commands.add_parser("processes")
    killed.add_argument("settings", nargs="*", help="of the server, such as privacy.noise=1")
    chosen = parser.parse_args()
    if chosen.command == "fleet":
        run = chosen.arm, chosen.devices, chosen.rounds, chosen.drop, chosen.seed
        print(json.dumps(run_arm(*run, chosen.bad, chosen.large, chosen.set)))
    elif chosen.command == "round":
        print(json.dumps(time_round(chosen.devices, chosen.parameters, chosen.drop)))
    elif chosen.command == "bonawitz":
        print(json.dumps(bonawitz_bytes(chosen.devices, chosen.parameters)))
    else:
        with tempfile.TemporaryDirectory() as folder:
            run_processes(Path(folder), chosen.settings)


if __name__ == "__main__":
    main()
