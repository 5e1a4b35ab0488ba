"""What `edgeflock quickstart` achieves: accuracy, updates and traffic of whole runs over real sockets.

Measured by the command itself on its defaults: test accuracy of the last version, bytes that the server
received on the devices' connections (framing included) against dense float32 pushes of as many updates, and
wall-clock seconds from the start of the server to the last evaluation. MNIST, if its npz is given, is
trained by 8 clients that send 1% of a gradient. Prints a Markdown table and one JSON object.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from edgeflock.papers.machine import machine


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run. Sizes in bytes."""

    data: str
    seed: int
    clients: int
    accuracy: float
    updates: int
    ingress: int
    dense: int
    reduction: float
    seconds: float


def quickstart(name: str, options: list[str], seed: int, out: Path) -> Outcome:
    """Run the command in a process of its own. Raises CalledProcessError if it fails."""
    command = [sys.executable, "-m", "edgeflock", "quickstart", "--json"]
    command += [*options, "--seed", str(seed), "--out", str(out)]
    # Its narration goes to stderr, for whoever waits.
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    result = json.loads(output)
    return Outcome(
        data=name,
        seed=seed,
        clients=result["clients"],
        accuracy=result["accuracy"],
        updates=result["updates"],
        ingress=result["ingress_bytes"],
        dense=result["dense_bytes"],
        reduction=round(result["reduction"], 1),
        seconds=result["seconds"],
    )


def table(outcomes: list[Outcome]) -> str:
    """A line a run, and the median of each data set that has several, as Markdown."""
    lines = [
        "| data | seed | clients | accuracy | updates | ingress | dense float32 | reduction | seconds |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
        *(_line(outcome, str(outcome.seed)) for outcome in outcomes),
    ]
    for data in dict.fromkeys(outcome.data for outcome in outcomes):
        runs = [outcome for outcome in outcomes if outcome.data == data]
        if len(runs) > 1:
            lines.append(_line(_median(runs), "median"))
    return "\n".join(lines)


def _line(outcome: Outcome, seed: str) -> str:
    return (
        f"| {outcome.data} | {seed} | {outcome.clients} | {outcome.accuracy:.2%} | {outcome.updates:,} "
        f"| {outcome.ingress / 1e6:,.2f} MB | {outcome.dense / 1e6:,.0f} MB | {outcome.reduction:,.0f}x "
        f"| {outcome.seconds:.1f} |"
    )


def _median(runs: list[Outcome]) -> Outcome:
    """Each figure's own median."""
    return Outcome(
        data=runs[0].data,
        seed=-1,
        clients=runs[0].clients,
        accuracy=statistics.median(run.accuracy for run in runs),
        updates=round(statistics.median(run.updates for run in runs)),
        ingress=round(statistics.median(run.ingress for run in runs)),
        dense=round(statistics.median(run.dense for run in runs)),
        reduction=statistics.median(run.reduction for run in runs),
        seconds=statistics.median(run.seconds for run in runs),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quickstart", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--mnist", type=Path, metavar="PATH", help="an npz of MNIST: train on it as well")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="runs on MNIST")
    parser.add_argument("--digits-seeds", type=int, default=3, metavar="N", help="runs on digits")
    parser.add_argument("--updates", type=int, default=0, metavar="N", help="stop early; 0: as the data need")
    parser.add_argument(
        "--backends", nargs="+", default=["auto"], metavar="NAME", help="auto, onnx, torch, mixed: each"
    )
    arguments = parser.parse_args()
    plans = []
    for backend in arguments.backends:
        label = "" if arguments.backends == ["auto"] else f", {backend}"
        own = ["--backend", backend]
        plans.append((f"digits{label}", [*own, "--data", "digits:"], arguments.digits_seeds))
        if arguments.mnist:
            options = ["--data", f"npz:{arguments.mnist.resolve()}", "--clients", "8"]
            options += ["--set", "compression.select=0.01"]
            plans.append((f"MNIST{label}", [*own, *options], arguments.seeds))
    with tempfile.TemporaryDirectory() as out:
        outcomes = [
            quickstart(name, [*options, "--updates", str(arguments.updates)], seed, Path(out))
            for name, options, seeds in plans
            for seed in range(seeds)
        ]
    print(table(outcomes))
    record = {"machine": machine(), "runs": [asdict(outcome) for outcome in outcomes]}
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
