"""What one sparse push costs: against a dense step, and through the whole server against a no-op echo.

    python -m benchmarks.push [--optimizer KIND] [--kernels]

P = 211,690. First c = .01, 4-bit values, 200 versions outstanding; then, through the whole server, that
without an answer, and updates of the record with the model in the receipt, exact and lossy. With --optimizer
all of it with that one, and what a push costs with it over one with sgd, in memory and served. Prints JSON.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from benchmarks import load
from benchmarks.updates import random_update, record_update
from edgeflock.papers.machine import machine
from edgeflock.server.descent import KINDS as OPTIMIZERS
from edgeflock.server.descent import Parameters, Regime, StepMethod
from edgeflock.server.engine.admission import admit
from edgeflock.shared.protocol.messages import Update

LAG = 200


def best_of(function: Callable[[], object], repeat: int) -> float:
    """Microseconds a call, over `repeat` calls."""
    began = time.perf_counter()
    for _ in range(repeat):
        function()
    return (time.perf_counter() - began) / repeat * 1e6


def pushes(kind: str) -> Callable[[], object]:
    """What a push is in memory: decode, admit, look where it leads, apply."""
    layout, random = load.PAPER_CNN, np.random.default_rng(0)
    updates = [random_update(layout, 0.01, "codebook4", random) for _ in range(64)]
    regime = Regime("adacomp", 1e-6, 256, method=StepMethod(kind))
    parameters = Parameters(0, np.zeros(layout.size, np.float32), regime=regime, start=0)

    def push() -> None:
        version = parameters.version
        update = replace(updates[version % 64], base=max(0, version - LAG))
        step = admit(update, layout, oldest=0, version=version, samples=1 << 16, expansion_bytes=1 << 28)
        assert parameters.fits(step, 60_000)
        parameters.apply(step)

    return push


def over_sgd(kind: str) -> dict[str, float]:
    """Interleaved: a push with the optimizer and one with sgd, in microseconds (medians)."""
    functions = (pushes(kind), pushes("sgd"))
    rounds = [[best_of(function, 300) for function in functions] for _ in range(21)]
    with_it, plain = (statistics.median(column) for column in zip(*rounds, strict=True))
    return {
        f"push_{kind}_us": round(with_it, 1),
        "push_sgd_us": round(plain, 1),
        "push_over_sgd": round(statistics.median(one / other for one, other in rounds), 2),
    }


async def served_over_sgd(kind: str, devices: int = 16, seconds: float = 3.0, rounds: int = 7) -> float:
    """Server CPU a push of c = .01, journal included, with the optimizer over that with sgd; interleaved."""
    random = np.random.default_rng(0)
    updates = [_four_bits(random) for _ in range(devices)]
    with (
        load.edgeflock(load.PAPER_CNN, settings=(f"optimizer.kind={kind}",)) as server,
        load.edgeflock(load.PAPER_CNN) as plain,
    ):
        pairs = [
            [await load.measure(one, updates, devices, seconds, lag=LAG) for one in (server, plain)]
            for _ in range(rounds)
        ]
    return round(statistics.median(w.cpu_microseconds / p.cpu_microseconds for w, p in pairs), 2)


def kernels(kind: str) -> dict[str, float]:
    """Interleaved: decode + admit, sigma + apply, and the in-place dense step, in microseconds (medians)."""
    layout, random = load.PAPER_CNN, np.random.default_rng(0)
    updates = [random_update(layout, 0.01, "codebook4", random) for _ in range(64)]
    regime = Regime("adacomp", 1e-6, 256, method=StepMethod(kind))
    parameters = Parameters(0, np.zeros(layout.size, np.float32), regime=regime, start=0)
    steps = [admit(u, layout, oldest=0, version=0, samples=1 << 16, expansion_bytes=1 << 28) for u in updates]
    theta, gradient = parameters.theta.copy(), random.standard_normal(layout.size).astype(np.float32)
    scratch, rate = np.empty_like(theta), np.float32(1e-3)
    turn = 0

    def decode_and_admit() -> None:
        nonlocal turn
        turn += 1
        admit(updates[turn % 64], layout, oldest=0, version=0, samples=1 << 16, expansion_bytes=1 << 28)

    def sigma_and_apply() -> None:
        nonlocal turn
        turn += 1
        step = steps[turn % 64]
        base = max(0, parameters.version - LAG)
        parameters.apply(type(step)(base, step.indices, step.delta))

    def dense_step() -> None:
        np.multiply(gradient, rate, out=scratch)
        np.subtract(theta, scratch, out=theta)

    functions = (decode_and_admit, sigma_and_apply, dense_step)
    rounds = [[best_of(function, 300) for function in functions] for _ in range(21)]
    ratios = [apply / dense for _, apply, dense in rounds]
    admit_us, apply_us, dense_us = (statistics.median(column) for column in zip(*rounds, strict=True))
    return {
        "decode_admit_us": round(admit_us, 1),
        "sigma_apply_us": round(apply_us, 1),
        "dense_step_us": round(dense_us, 1),
        "sigma_apply_over_dense": round(statistics.median(ratios), 2),
    }


class Load(NamedTuple):
    """What is pushed, to a server of these settings."""

    update: Callable[[np.random.Generator], Update]
    settings: tuple[str, ...] = ()


def _four_bits(random: np.random.Generator) -> Update:
    return random_update(load.PAPER_CNN, 0.01, "codebook4", random)


def _record(random: np.random.Generator) -> Update:
    return record_update(load.PAPER_CNN, random)


LOADS = {
    "c=.01, 4 bits, no answer": Load(_four_bits),
    "record, exact answer": Load(_record),
    "record, lossy answer": Load(_record, ("downlink.mode=lossy",)),
}


async def whole_path(
    of: Load, kind: str, devices: int = 16, seconds: float = 3.0, rounds: int = 5
) -> dict[str, float]:
    """Server CPU a push, journal included, over that of an echo of the same frames; interleaved."""
    random = np.random.default_rng(0)
    updates = [of.update(random) for _ in range(devices)]
    pushes, echoes = [], []
    with (
        load.edgeflock(load.PAPER_CNN, settings=(*of.settings, f"optimizer.kind={kind}")) as server,
        load.echo() as other,
    ):
        for _ in range(rounds):
            pushes.append(await load.measure(server, updates, devices, seconds, lag=LAG))
            echoes.append(await load.measure(other, updates, devices, seconds, lag=LAG, plain=True))
    pairs = zip(pushes, echoes, strict=True)
    ratio = statistics.median(p.cpu_microseconds / e.cpu_microseconds for p, e in pairs)
    return {
        "devices": devices,
        "push_cpu_us": round(statistics.median(p.cpu_microseconds for p in pushes), 1),
        "echo_cpu_us": round(statistics.median(e.cpu_microseconds for e in echoes), 1),
        "push_over_echo": round(ratio, 2),
        "pushes_per_second": round(statistics.median(p.per_second for p in pushes)),
    }


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.push", description=__doc__.split("\n")[0])
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd", metavar="KIND")
    parser.add_argument("--kernels", action="store_true", help="in memory only, no server")
    asked = parser.parse_args()
    kind = asked.optimizer
    result = {"machine": machine(), "optimizer": kind}
    if kind != "sgd":
        result |= over_sgd(kind)
    result |= kernels(kind)
    if not asked.kernels:
        if kind != "sgd":
            result["served_push_over_sgd"] = asyncio.run(served_over_sgd(kind))
        result["whole_path"] = {name: asyncio.run(whole_path(of, kind)) for name, of in LOADS.items()}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
