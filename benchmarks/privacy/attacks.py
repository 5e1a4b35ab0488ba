"""What attacks find with and without privacy: gradient inversion, and membership inference.

    python -m benchmarks.privacy.attacks [--steps N] [--examples N] [--output FOLDER]

Gradient inversion (J. Geiping et al., "Inverting gradients", NeurIPS 2020): the attacker sees one update of a
device, of one digit, and searches for an image whose gradient points the same way. It knows the label and the
model. PSNR of the best image; above 20 dB a digit is easy to read. `one grey` is an image of the mean of all.

Membership inference (S. Yeom et al., CSF 2018): examples with a lower loss were trained on. The area under
the curve, 0.5 being a guess, for a network that was trained with and without DP-SGD on 200 digits. 30% of the
labels are random, as otherwise it would have to memorize little.

Leaves attacks.json in --output.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from benchmarks.privacy.calibration import sampled_noise
from edgeflock.client.zoo import DigitsCNN
from edgeflock.papers.machine import machine
from edgeflock.shared.data.datasets import load

Views = dict[str, Callable[[Tensor], Tensor]]


def views(random: torch.Generator) -> Views:
    """Return what the attacker sees of a gradient, float32 [P], by name."""

    def largest(gradient: Tensor, count: int) -> Tensor:
        mask = torch.zeros_like(gradient)
        mask[gradient.abs().topk(count).indices] = 1
        kept: Tensor = gradient * mask
        return kept

    def private(gradient: Tensor, noise: float) -> Tensor:
        clipped: Tensor = gradient / gradient.norm().clamp(min=1)
        return clipped + noise * torch.randn(gradient.shape, generator=random)

    return {
        "the gradient": lambda gradient: gradient,
        "the largest tenth": lambda gradient: largest(gradient, gradient.numel() // 10),
        "signs of sqrt(P) entries": lambda gradient: largest(gradient, int(gradient.numel() ** 0.5)).sign(),
        "clip 1, noise 0.001": lambda gradient: private(gradient, 0.001),
        "clip 1, noise 0.01": lambda gradient: private(gradient, 0.01),
        "clip 1, noise 0.1": lambda gradient: private(gradient, 0.1),
        "clip 1, noise 1": lambda gradient: private(gradient, 1.0),
    }


def invert(module: nn.Module, seen: Tensor, label: Tensor, steps: int) -> Tensor:
    """Return the image whose gradient is nearest in angle to `seen`, by signed Adam with total variation."""
    guess = torch.full((1, 1, 8, 8), 0.5, requires_grad=True)
    optimizer = torch.optim.Adam([guess], lr=0.05)
    known = seen != 0 if (seen == 0).float().mean() > 0.5 else torch.ones_like(seen, dtype=torch.bool)
    target = seen[known]
    signed = bool((target.abs() == 1).all())
    for step in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(guess), label)
        found = torch.cat(
            [one.flatten() for one in torch.autograd.grad(loss, [*module.parameters()], create_graph=True)]
        )
        found = found[known]
        found = torch.tanh(found / found.abs().mean()) if signed else found
        angle = 1 - nn.functional.cosine_similarity(found, target, dim=0)
        variation = guess.diff(dim=2).abs().mean() + guess.diff(dim=3).abs().mean()
        (angle + 1e-3 * variation).backward()  # type: ignore[no-untyped-call]
        guess.grad = guess.grad.sign() if guess.grad is not None else None
        optimizer.step()
        if step == steps * 2 // 3:
            optimizer.param_groups[0]["lr"] = 0.005
        with torch.no_grad():
            guess.clamp_(0, 1)
    return guess.detach()


def psnr(image: Tensor, truth: Tensor) -> float:
    """Peak signal-to-noise ratio in dB of images with values of 0 to 1."""
    return float(-10 * torch.log10(((image - truth) ** 2).mean()))


def inversions(examples: int, steps: int) -> Iterator[dict[str, object]]:
    """Invert the first digits, and return the mean PSNR for each view."""
    torch.manual_seed(0)
    module, random = DigitsCNN(), torch.Generator().manual_seed(1)
    data = load("digits:", "train")
    x, y = torch.from_numpy(np.asarray(data.x)), torch.from_numpy(np.asarray(data.y).astype(np.int64))
    found: dict[str, list[float]] = {name: [] for name in views(random)}
    found["one grey"] = [psnr(x.mean(), x[k : k + 1]) for k in range(examples)]
    for k in range(examples):
        one, label = x[k : k + 1], y[k : k + 1]
        loss = nn.functional.cross_entropy(module(one), label)
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, [*module.parameters()])])
        for name, view in views(random).items():
            found[name].append(psnr(invert(module, view(gradient), label, steps), one))
            print(k, name, round(found[name][-1], 1), flush=True)
    for name, values in found.items():
        yield {"attack": "inversion", "seen": name, "psnr": float(np.mean(values)), "each": values}


def area(members: NDArray[np.float32], others: NDArray[np.float32]) -> float:
    """The chance that a member has a lower loss than another example."""
    ranks = np.concatenate((members, others)).argsort().argsort()[: members.size] + 1.0
    above = ranks.sum() - members.size * (members.size + 1) / 2
    return float(1 - above / (members.size * others.size))


def membership(epsilon: float, seed: int, size: int = 200, steps: int = 300) -> dict[str, object]:
    """Train on `size` digits, by DP-SGD with 0 < epsilon < infinity, and tell members by their losses."""
    torch.manual_seed(seed)
    data = load("digits:", "train")
    order = np.random.default_rng(seed).permutation(len(data))
    x = torch.from_numpy(np.asarray(data.x)[order[: 2 * size]])
    y = torch.from_numpy(np.asarray(data.y).astype(np.int64)[order[: 2 * size]])
    wrong = torch.rand(2 * size) < 0.3
    y[wrong] = torch.randint(10, (int(wrong.sum()),))
    chance, noise, delta = 0.25, 0.0, size**-1.1
    if epsilon:
        noise = sampled_noise(chance, steps, epsilon, delta)
    module = DigitsCNN()
    theta: dict[str, Tensor] = dict(module.named_parameters())

    def loss(theta: dict[str, Tensor], one: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(module, theta, (one[None],)), target[None])

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))
    for _ in range(steps):
        chosen = (torch.rand(size) < chance).nonzero()[:, 0]
        found = gradients(theta, x[chosen], y[chosen])
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in found.values()]).norm(dim=0)
        scale = 1 / norms.clamp(min=1) if epsilon else torch.ones_like(norms)
        with torch.no_grad():
            for name, one in theta.items():
                total = torch.einsum("n,n...->...", scale, found[name]) + noise * torch.randn_like(one)
                one.sub_((0.5 if epsilon else 0.2) * total / (chance * size))
    with torch.no_grad():
        losses = nn.functional.cross_entropy(module(x), y, reduction="none").numpy()
        accuracy = float((module(x[size:]).argmax(1) == y[size:]).float().mean())
    return {
        "attack": "membership",
        "epsilon": epsilon,
        "seed": seed,
        "auc": area(losses[:size], losses[size:]),
        "accuracy": accuracy,
        "noise": noise,
        "delta": delta,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--examples", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("privacy"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    asked.output.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, object]] = [{"machine": machine()}]
    rows += inversions(asked.examples, asked.steps)
    for seed in range(3):
        for epsilon in (0.0, 8.0, 2.0):
            rows.append(membership(epsilon, seed))
            print(rows[-1], flush=True)
    (asked.output / "attacks.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
