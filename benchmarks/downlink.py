"""What devices are sent, beside what they send: bytes both ways of emulated fleets.

    python -m benchmarks.downlink [--data npz:mnist.npz] [--updates 2000] [--devices 4,16,200]

Prints JSON. A pull is what a device gets with a receipt, its first model apart, if it must be sent that;
`rest_ms` is the CPU time an update takes beyond its gradient: selection, coding, both ends of the wire,
engine, clock.
"""

import argparse
import json
import os
from typing import Any

from benchmarks.emulation import FLEET, METHODS
from edgeflock.devices.emulation.config import parse
from edgeflock.devices.emulation.fleet import prepare, run_fleet
from edgeflock.papers.machine import machine
from edgeflock.shared.model.torch_module import FlatModule


def both_ways(method: str, devices: int, data: str, updates: int) -> dict[str, Any]:
    rule, overrides = METHODS[method]
    text = FLEET.format(presence="", updates=updates, data=data, devices=devices, rule=rule)
    file = parse(text, method, overrides)
    result = run_fleet(prepare(file), 0)
    (total,) = result.classes.values()
    flat = FlatModule(file.model.module, file.model.loss)
    model = 4 * flat.layout.size
    first = 0 if flat.first_model(0)[1] else model
    later = total.egress - devices * first
    return {
        "method": method,
        "devices": devices,
        "updates": result.updates,
        "up_mb": round(total.ingress / 1e6, 2),
        "down_mb": round(total.egress / 1e6, 1),
        "first_models_mb": round(devices * first / 1e6, 1),
        "pull_kb": round(later / result.updates / 1e3, 2),
        "of_a_whole_model": round(later / result.updates / model, 4),
        "rest_ms": round(
            (result.total_s - result.gradient_s - result.evaluation_s) / result.updates * 1e3, 2
        ),
        "digest": result.digest[:16],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    folder = os.environ.get("EDGEFLOCK_DATA", ".")
    parser.add_argument("--data", default=f"npz:{folder}/mnist.npz")
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--devices", default="4,16,200")
    arguments = parser.parse_args()
    rows = [
        both_ways(method, int(devices), arguments.data, arguments.updates)
        for method in ("record", "AdaComp c=0.01 f32")
        for devices in arguments.devices.split(",")
    ]
    print(json.dumps({"machine": machine(), "both_ways": rows}, indent=2))


if __name__ == "__main__":
    main()
