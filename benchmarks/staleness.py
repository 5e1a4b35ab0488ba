"""What staleness does to each optimizer: updates to a hundredth of the loss, on a quadratic. A figure.

    python -m benchmarks.staleness [--out docs/images/optimizers.svg]

1,000 parameters of curvatures from 0.1 to 1. Of n devices any may be the next one (exponential times); it
pushes the largest twentieth of its noisy gradient at the model that it got with its last receipt, and keeps
the rest for its next (feedback 0.9). Each optimizer counts at the best rate of a grid, with AdaComp's rule
and with none.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from edgeflock.server.descent import Parameters, Regime, Step, StepMethod

SIZE, ENTRIES, MOST = 1000, 50, 6000
FLEETS = (1, 5, 20, 80, 200)
KINDS = ("sgd", "momentum", "nesterov", "adam")
RATES = {
    "sgd": (0.03, 0.1, 0.3, 1.0, 3.0),
    "momentum": (0.003, 0.01, 0.03, 0.1, 0.3),
    "nesterov": (0.003, 0.01, 0.03, 0.1, 0.3),
    "adam": (0.003, 0.01, 0.03, 0.1, 0.3),
}


def updates_to_a_hundredth(kind: str, rule: str, rate: float, devices: int) -> int:
    """MOST if it does not get there."""
    random = np.random.default_rng([devices, 7])
    curvature = np.logspace(-1, 0, SIZE).astype(np.float32)
    theta = random.standard_normal(SIZE).astype(np.float32)
    parameters = Parameters(0, theta, regime=Regime(rule, rate, 4096, method=StepMethod(kind)), start=0)
    first = float(curvature @ (theta * theta))
    held = [(0, theta.copy()) for _ in range(devices)]
    left = np.zeros((devices, SIZE), np.float32)
    for version in range(MOST):
        device = int(random.integers(devices))
        base, model = held[device]
        noise = 0.1 * random.standard_normal(SIZE).astype(np.float32)
        gradient = curvature * model + noise + np.float32(0.9) * left[device]
        where = np.sort(np.argpartition(-np.abs(gradient), ENTRIES)[:ENTRIES])
        delta = gradient[where]
        gradient[where] = 0
        left[device] = gradient
        with np.errstate(over="ignore", invalid="ignore"):
            parameters.apply(Step(base, where, delta))
            loss = float(curvature @ (theta * theta))
        if loss <= first / 100:
            return version + 1
        if not loss <= 100 * first:
            return MOST
        held[device] = version + 1, theta.copy()
    return MOST


def lines() -> Iterator[tuple[str, str, list[int]]]:
    """(kind, rule, the fewest updates of any rate for each number of devices)."""
    for rule in ("adacomp", "none"):
        for kind in KINDS:
            yield (
                kind,
                rule,
                [
                    min(updates_to_a_hundredth(kind, rule, rate, devices) for rate in RATES[kind])
                    for devices in FLEETS
                ],
            )


def main() -> None:
    from matplotlib.figure import Figure

    parser = argparse.ArgumentParser("python -m benchmarks.staleness", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("docs/images/optimizers.svg"))
    out = parser.parse_args().out
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    axes = {"adacomp": left, "none": right}
    print(f"| optimizer | rule | {' | '.join(f'n = {devices}' for devices in FLEETS)} |")
    print(f"|---|---|{'--:|' * len(FLEETS)}")
    for kind, rule, updates in lines():
        cells = [f"{one:,}" if one < MOST else "-" for one in updates]
        print(f"| {kind} | {rule} | {' | '.join(cells)} |", flush=True)
        reached = [(devices, one) for devices, one in zip(FLEETS, updates, strict=True) if one < MOST]
        axes[rule].plot(*zip(*reached, strict=True), marker="o", label=kind) if reached else None
    for rule, panel in axes.items():
        panel.set(title=f'rule = "{rule}"', xlabel="devices", xscale="log", yscale="log")
        panel.set_xticks(FLEETS, [str(devices) for devices in FLEETS])
    left.set_ylabel("updates to a hundredth of the loss")
    left.legend()
    figure.savefig(out)


if __name__ == "__main__":
    main()
