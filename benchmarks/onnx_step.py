"""The exported training step against torch: the same gradients, and how long each takes on one core.

    python -m benchmarks.onnx_step [--steps 200] [--batch 10] [--draws 10] [MODEL ...]

Steps of the two backends alternate; the ratio is the median of the pairs'. Errors are against torch in
float64: the largest difference in any tensor relative to its largest entry, or to a hundredth of the
model's. Rounding can put a value on the other side of a ReLU's or a pool's kink, and then its share of a
gradient is gone, in torch as in ONNX: so the errors of both are given, of several batches of each size.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import functional_call

from edgeflock.client.backends import Backend
from edgeflock.client.backends.onnx import OnnxBackend
from edgeflock.client.backends.torch import TorchBackend
from edgeflock.papers.machine import machine
from edgeflock.server.training_graph.export import export_model
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.torch_module import FlatModule

ZOO = "edgeflock.client.zoo:"
INPUTS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "PaperMLP": ((1, 28, 28), (), 10),
    "PaperCNN": ((1, 28, 28), (), 10),
    "SvhnCNN": ((3, 32, 32), (), 10),
    "ResNetGN": ((3, 32, 32), (), 10),
    "ResNetBN": ((3, 32, 32), (), 10),
    "LSTMTagger": ((20, 32), (20,), 17),
    "TransformerBlock": ((16, 32), (), 10),
    "Gru": ((64, 2), (), 3),
}
"""Model -> shape of a sample, shape of its target, classes."""

ELSEWHERE = {name: f"benchmarks.models.nets:{name}" for name in ("Gru", "LSTMTagger", "TransformerBlock")}
"""Models that are not of the zoo."""

Gradient = NDArray[np.floating]
Batch = tuple[NDArray[np.float32], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Row:
    model: str
    torch_ms: float
    onnx_ms: float
    ratio: float
    onnx_errors: dict[int, tuple[float, float]]
    """Batch size -> (median, worst)."""
    torch_errors: dict[int, tuple[float, float]]
    export_s: float
    export_cpu_s: float
    graph_bytes: int


def draw(model: str, size: int, seed: int) -> Batch:
    sample, target, classes = INPUTS[model]
    random = np.random.default_rng([seed, size])
    x = random.standard_normal((size, *sample)).astype(np.float32)
    return x, random.integers(0, classes, (size, *target))


def error(found: Gradient, wanted: Gradient, layout: Layout) -> float:
    largest = np.abs(wanted).max()
    places = [slice(tensor.start, tensor.stop) for tensor in layout.parameters.tensors]
    return max(
        float(np.abs(found[p] - wanted[p]).max() / max(np.abs(wanted[p]).max(), 0.01 * largest))
        for p in places
    )


def exact(
    flat: FlatModule, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.int64]
) -> Gradient:
    """Return torch's gradient in float64."""
    flat.module.train()
    state = {
        tensor.name: torch.from_numpy(theta[tensor.start : tensor.stop].astype(np.float64)).view(tensor.shape)
        for tensor in flat.layout.tensors
    }
    trained = [state[tensor.name].requires_grad_() for tensor in flat.layout.parameters.tensors]
    inputs = torch.from_numpy(x).double()
    output = functional_call(flat.module, state, (inputs,))
    gradients = torch.autograd.grad(flat.criterion(output, torch.from_numpy(y), inputs), trained)
    return np.concatenate([gradient.numpy().ravel() for gradient in gradients])


def measure(model: str, batch: int, steps: int, draws: int) -> Row:
    path = ELSEWHERE.get(model, ZOO + model)
    began, began_cpu = time.perf_counter(), time.process_time()
    graph = export_model(path, "cross_entropy", *draw(model, 4, 0)).step
    export_s, export_cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    flat = FlatModule(path, "cross_entropy")
    theta = flat.theta()
    backends: dict[str, Backend] = {
        "torch": TorchBackend(path, "cross_entropy"),
        "onnx": OnnxBackend(graph, flat.layout),
    }
    errors: dict[str, dict[int, tuple[float, float]]] = {"torch": {}, "onnx": {}}
    for size in (1, 2, 7, 64):
        found: dict[str, list[float]] = {"torch": [], "onnx": []}
        for seed in range(draws):
            x, y = draw(model, size, seed)
            wanted = exact(flat, theta, x, y)
            for name, backend in backends.items():
                found[name].append(error(backend.gradient(theta, x, y)[1], wanted, flat.layout))
        for name, values in found.items():
            errors[name][size] = float(np.median(values)), max(values)
    x, y = draw(model, batch, 0)
    seconds: dict[str, list[float]] = {"torch": [], "onnx": []}
    for number in range(steps + 10):
        for name, backend in backends.items():
            began = time.perf_counter()
            backend.gradient(theta, x, y)
            if number >= 10:
                seconds[name].append(time.perf_counter() - began)
    ratio = float(np.median(np.divide(seconds["onnx"], seconds["torch"])))
    torch_ms, onnx_ms = (1000 * float(np.median(seconds[name])) for name in ("torch", "onnx"))
    return Row(
        model, torch_ms, onnx_ms, ratio, errors["onnx"], errors["torch"], export_s, export_cpu_s, len(graph)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(INPUTS))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [measure(model, options.batch, options.steps, options.draws) for model in options.models or INPUTS]
    if options.json:
        print(
            json.dumps({"machine": machine(), "batch": options.batch, "rows": [asdict(row) for row in rows]})
        )
        return
    print(f"{machine()}; batch {options.batch}, {options.steps} steps")
    print("| model | torch ms | onnx ms | ratio | export s | of CPU | graph KB |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row.model} | {row.torch_ms:.2f} | {row.onnx_ms:.2f} | {row.ratio:.2f} "
            f"| {row.export_s:.0f} | {row.export_cpu_s:.0f} | {row.graph_bytes / 1e3:.0f} |"
        )
    print("\n| error: onnx (torch), median; worst | batch 1 | 2 | 7 | 64 |")
    print("|---|---|---|---|---|")
    for row in rows:
        cells = (
            f"{row.onnx_errors[size][0]:.0e} ({row.torch_errors[size][0]:.0e}); "
            f"{row.onnx_errors[size][1]:.0e} ({row.torch_errors[size][1]:.0e})"
            for size in row.onnx_errors
        )
        print(f"| {row.model} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
