"""Twelve models that nobody tuned, on devices with torch and without, against plain central SGD.

    python -m benchmarks.models.train --updates 800 -o models.json [MODEL ...]

SGD is tried at each rate. Each fleet has two devices of one backend over loopback, begins with the same
parameters and has as many batches as SGD has steps, at SGD's better rate and, where it falls short, at the
others. All of a gradient is sent, as a project of `edgeflock init` has it. The score is the accuracy on
held-out data; of pixels in or out of a shape, how much of the found and the true one is in both; of numbers
R2; in percent.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import edgeflock
from benchmarks.models.data import MAKERS, archive
from edgeflock.server.weights import first_model
from edgeflock.shared.data import datasets
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.model.fields import rows
from edgeflock.shared.model.torch_module import FlatModule, applied, tensors_of

NETS = "benchmarks.models.nets:"

LOSSES = {
    "TiedAutoencoder": NETS + "pixels",
    "UNet": "bce",
    "TwoInputs": "mse",
    "Tagger": "bce",
    "Huber": "huber(delta=0.5)",
    "Decoder": "mse",
}
"""Those that are not cross_entropy."""

BATCH, SHORT = 20, 2.0
"""Samples of a batch; points by which a fleet falls short."""


def score(module: torch.nn.Module, name: str, data: Dataset) -> float:
    with torch.no_grad():
        output = applied(module.eval(), tensors_of(data.x)).numpy()
    loss = LOSSES.get(name, "cross_entropy")
    if loss == "cross_entropy":
        return 100 * float((output.argmax(1) == data.y).mean())
    if name == "UNet":
        found, true = output > 0, data.y > 0.5
        return 100 * float((found & true).sum() / (found | true).sum())
    if loss == "bce":
        return 100 * float(((output > 0) == (data.y > 0.5)).mean())
    target = data.x.reshape(len(data.x), -1) if name == "TiedAutoencoder" else data.y
    return 100 * float(1 - ((output - target) ** 2).mean() / target.var(0).mean())


def central(name: str, train: Dataset, test: Dataset, steps: int, rate: float) -> float:
    """Plain SGD, no momentum; running statistics at BatchNorm's usual momentum."""
    flat = FlatModule(NETS + name, LOSSES.get(name, "cross_entropy"))
    theta, _ = first_model(flat, "", 0)
    random, trained = np.random.default_rng(0), flat.layout.parameters.size
    order = np.zeros(0, np.int64)
    for _ in range(steps):
        if order.size < BATCH:
            order = random.permutation(len(train))
        chosen, order = order[:BATCH], order[BATCH:]
        step = flat.gradient(theta, rows(train.x, chosen), train.y[chosen])
        theta[:trained] -= np.float32(rate) * step.gradient
        theta[trained:] += 0.1 * (step.statistics - theta[trained:])
    return score(flat.at(theta), name, test)


async def fleet(
    name: str, uri: str, test: Dataset, updates: int, rate: float, backend: str, directory: str
) -> float:
    model = edgeflock.Model(NETS + name, loss=LOSSES.get(name, "cross_entropy"))
    settings: dict[str, Any] = {"updates": updates, "batch": BATCH, "open": True, "evaluate_every": 5.0}
    coordination = {"learning_rate": rate}
    async with edgeflock.Server(
        model,
        directory=directory,
        evaluate=uri,
        coordination=coordination,
        compression={"select": 1},
        **settings,
    ) as server:
        own = {"model": NETS + name} if backend == "torch" else {}
        clients = [
            edgeflock.Client(
                server.url, data=f"{uri}?part={part}/2", backend=backend, name=f"{part}", health=False,
                directory=directory, **own,
            )
            for part in (1, 2)
        ]  # fmt: skip
        await asyncio.gather(*(client.run() for client in clients))
        result = await server.until()
    return score(result.module(), name, test)


def measure(name: str, updates: int, rates: Sequence[float]) -> dict[str, Any]:
    """Scores by rate, and seconds of each; what could not be is a text."""
    row: dict[str, Any] = {"model": name}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "data.npz"
        np.savez(path, **archive(MAKERS[name](np.random.default_rng(0))))  # type: ignore[arg-type]
        uri = f"npz:{path}"
        train, test = (datasets.load(uri, split) for split in ("train", "test"))
        row["sgd"] = {rate: central(name, train, test, updates, rate) for rate in rates}
        best = max(row["sgd"].values())
        for backend in ("torch", "onnx"):
            row[backend] = {}
            began = time.perf_counter()
            for rate in sorted(rates, key=lambda rate: -row["sgd"][rate]):
                if max(row[backend].values(), default=-np.inf) >= best - SHORT:
                    break
                where = str(Path(directory) / f"{backend}-{rate}")
                try:
                    row[backend][rate] = asyncio.run(fleet(name, uri, test, updates, rate, backend, where))
                except edgeflock.EdgeflockError as error:
                    row[f"{backend}_{rate}"] = str(error)
            row[f"{backend}_s"] = time.perf_counter() - began
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=[*MAKERS])
    parser.add_argument("--updates", type=int, default=800)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.1, 0.4])
    parser.add_argument("-o", "--output", type=Path, default=Path("models.json"))
    arguments = parser.parse_args()
    done = []
    for name in arguments.models or [*MAKERS]:
        done.append(measure(name, arguments.updates, arguments.rates))
        print(json.dumps(done[-1]), flush=True)
        arguments.output.write_text(json.dumps(done, indent=1))


if __name__ == "__main__":
    main()
