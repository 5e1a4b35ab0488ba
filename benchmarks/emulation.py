"""What emulating a fleet costs beyond the gradients, and how much memory a large idle fleet takes.

    python -m benchmarks.emulation [--data npz:mnist.npz] [--updates 1500]

Prints JSON. `overhead` is the CPU time of everything but gradients and evaluations (selection, coding, both
ends of the wire, engine, clock) over that of the gradients, once the fleet is under way.
"""

import argparse
import json
import multiprocessing
import os
import resource
from typing import Any

from benchmarks.plain import FOUR_BITS, PLAIN
from edgeflock.devices.emulation.config import parse
from edgeflock.devices.emulation.fleet import prepare, run_fleet
from edgeflock.papers.machine import machine

FLEET = """
[end]
updates = {updates}
[journal]
keep_updates = false
[model]
module = "edgeflock.client.zoo:PaperCNN"
data = "{data}"
[coordination]
rule = "{rule}"
learning_rate = 0.1
window = 4096
[fleet]
devices = {devices}
data = "{data}"
evaluate_every = {updates}
[devices.all]
step_ms = 1000
timing = "exponential"
{presence}
"""

METHODS = {
    "record": ("adacomp", ["preset=low-bandwidth", "local.steps=1", "downlink.mode=exact"]),
    "AdaComp c=0.001 sign": ("adacomp", [*PLAIN, "compression.select=0.001", "compression.values=sign"]),
    "AdaComp c=0.01 f32": ("adacomp", [*PLAIN, "compression.select=0.01"]),
    "AdaComp c=0.1 f32": ("adacomp", [*PLAIN, "compression.select=0.1"]),
    "ASGD dense": ("tau", [*PLAIN, "compression.select=1.0"]),
}


def overhead(method: str, data: str, updates: int) -> dict[str, Any]:
    """200 devices with the paper's CNN: what updates cost once under way, and what it took to begin."""
    rule, overrides = METHODS[method]

    def cost(updates: int) -> tuple[float, float]:
        text = FLEET.format(presence="", updates=updates, data=data, devices=200, rule=rule)
        result = run_fleet(prepare(parse(text, method, overrides)), 0)
        return result.gradient_s, result.total_s - result.gradient_s - result.evaluation_s

    few, many = cost(200), cost(200 + updates)
    gradient, rest = (later - before for later, before in zip(many, few, strict=True))
    return {
        "method": method,
        "gradient_ms": round(gradient / updates * 1e3, 2),
        "rest_ms": round(rest / updates * 1e3, 2),
        "overhead": round(rest / gradient, 3),
        "start_s": round(few[1] - 200 * rest / updates, 2),
    }


def idle(devices: int, data: str, updates: int) -> dict[str, Any]:
    """A fleet whose devices are away 99% of the time."""
    presence = "session_s = 60\naway_s = 6000"
    text = FLEET.format(presence=presence, updates=updates, data=data, devices=devices, rule="adacomp")
    result = run_fleet(prepare(parse(text, "idle", FOUR_BITS)), 0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"devices": devices, "updates": result.updates, "peak_rss_gib": round(peak / 2**30, 2)}


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.emulation", description=__doc__.split("\n")[0])
    folder = os.environ.get("EDGEFLOCK_DATA", ".")
    parser.add_argument("--data", default=f"npz:{folder}/mnist.npz")
    parser.add_argument("--updates", type=int, default=1500)
    parser.add_argument("--devices", type=int, default=10_000)
    arguments = parser.parse_args()
    # A process each: peak memory is a process's, and none inherits another's warm caches.
    context = multiprocessing.get_context("spawn")
    with context.Pool(1, maxtasksperchild=1) as pool:
        methods = [pool.apply(overhead, (name, arguments.data, arguments.updates)) for name in METHODS]
        away = pool.apply(idle, (arguments.devices, arguments.data, arguments.updates))
    print(json.dumps({"machine": machine(), "overhead": methods, "idle": away}, indent=1))


if __name__ == "__main__":
    main()
