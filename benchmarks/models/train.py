"""Twelve models that nobody tuned, on devices with torch and without, against central training.

    python -m benchmarks.models.train --updates 800 --seeds 3 -o models.json [MODEL ...]
    python -m benchmarks.models.train --optimizer adam ViT

Central is torch's own optimizer, plain SGD or Adam, tried at each rate. Each fleet has two devices of one
backend over loopback, its server the same optimizer; it begins with the same parameters and has as many
batches as there are central steps, at the better central rate and, where it falls short, at the others. All
of a gradient is sent, as a project of `edgeflock init` has it. The score is the accuracy on held-out data; of
pixels in or out of a shape, how much of the found and the true one is in both; of numbers R2; in percent. A
seed is of the data where they are made up, of the first parameters and of the batches.
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
from edgeflock.server.hosting.weights import first_model
from edgeflock.shared.data import datasets
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.model.fields import rows
from edgeflock.shared.model.modules.building import apply, to_tensors
from edgeflock.shared.model.torch_module import FlatModule

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

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], list[float]]] = {
    "sgd": (torch.optim.SGD, [0.1, 0.4]),
    "adam": (torch.optim.Adam, [0.002, 0.005]),
}
"""optimizer.kind -> (torch's, rates that are tried)."""

BATCH, SHORT = 20, 2.0
"""Samples of a batch; points by which a fleet falls short."""


def score(module: torch.nn.Module, name: str, data: Dataset) -> float:
    with torch.no_grad():
        output = apply(module.eval(), to_tensors(data.x)).numpy()
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


def central(
    name: str, train: Dataset, test: Dataset, steps: int, optimizer: str, rate: float, seed: int
) -> float:
    """No momentum but Adam's own; running statistics at BatchNorm's usual momentum."""
    flat = FlatModule(NETS + name, LOSSES.get(name, "cross_entropy"), seed)
    theta, _ = first_model(flat, "", seed)
    random, trained = np.random.default_rng(seed), flat.layout.parameters.size
    parameters = torch.from_numpy(theta)[:trained]  # one memory
    steps_by = OPTIMIZERS[optimizer][0]([parameters], lr=rate)  # type: ignore[call-arg]
    order = np.zeros(0, np.int64)
    for _ in range(steps):
        if order.size < BATCH:
            order = random.permutation(len(train))
        chosen, order = order[:BATCH], order[BATCH:]
        step = flat.gradient(theta, rows(train.x, chosen), train.y[chosen])
        parameters.grad = torch.from_numpy(np.array(step.gradient, np.float32))
        steps_by.step()
        theta[trained:] += 0.1 * (step.statistics - theta[trained:])
    return score(flat.evaluation_module(theta), name, test)


async def fleet(
    name: str,
    uri: str,
    test: Dataset,
    updates: int,
    optimizer: str,
    rate: float,
    seed: int,
    backend: str,
    directory: str,
) -> float:
    model = edgeflock.Model(NETS + name, loss=LOSSES.get(name, "cross_entropy"))
    settings: dict[str, Any] = {"updates": updates, "batch": BATCH, "open": True, "evaluate_every": 5.0}
    coordination = {"learning_rate": rate}
    async with edgeflock.Server(
        model,
        directory=directory,
        evaluate=uri,
        coordination=coordination,
        optimizer={"kind": optimizer},
        seed=seed,
        compression={"select": 1},
        **settings,
    ) as server:
        own = {"model": NETS + name} if backend == "torch" else {}
        clients = [
            edgeflock.Client(
                server.url, data=f"{uri}?part={part}/2", backend=backend, name=f"{part}", health=False,
                directory=directory, seed=seed, **own,
            )
            for part in (1, 2)
        ]  # fmt: skip
        await asyncio.gather(*(client.run() for client in clients))
        result = await server.until()
    return score(result.module(), name, test)


def measure(name: str, updates: int, optimizer: str, rates: Sequence[float], seed: int) -> dict[str, Any]:
    """Scores by rate, and seconds of each; what could not be is a text."""
    row: dict[str, Any] = {"model": name, "optimizer": optimizer, "updates": updates, "seed": seed}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "data.npz"
        np.savez(path, **archive(MAKERS[name](np.random.default_rng(seed))))  # type: ignore[arg-type]
        uri = f"npz:{path}"
        train, test = (datasets.load(uri, split) for split in ("train", "test"))
        row["central"] = {rate: central(name, train, test, updates, optimizer, rate, seed) for rate in rates}
        best = max(row["central"].values())
        for backend in ("torch", "onnx"):
            row[backend] = {}
            began = time.perf_counter()
            for rate in sorted(rates, key=lambda rate: -row["central"][rate]):
                if max(row[backend].values(), default=-np.inf) >= best - SHORT:
                    break
                where = str(Path(directory) / f"{backend}-{rate}")
                run = fleet(name, uri, test, updates, optimizer, rate, seed, backend, where)
                try:
                    row[backend][rate] = asyncio.run(run)
                except edgeflock.EdgeflockError as error:
                    row[f"{backend}_{rate}"] = str(error)
            row[f"{backend}_s"] = time.perf_counter() - began
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=[*MAKERS])
    parser.add_argument("--updates", type=int, default=800)
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    parser.add_argument("--rates", type=float, nargs="+")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("-o", "--output", type=Path, default=Path("models.json"))
    asked = parser.parse_args()
    rates = asked.rates or OPTIMIZERS[asked.optimizer][1]
    done = []
    for name in asked.models or [*MAKERS]:
        for seed in range(asked.first, asked.first + asked.seeds):
            done.append(measure(name, asked.updates, asked.optimizer, rates, seed))
            print(json.dumps(done[-1]), flush=True)
            asked.output.write_text(json.dumps(done, indent=1))


if __name__ == "__main__":
    main()
