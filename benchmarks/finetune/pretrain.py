"""Train the zoo's language model on general English: python -m benchmarks.finetune.pretrain FOLDER.

FOLDER gets the texts' packages (texts.py), the vocabulary, the token ids, the newest checkpoint and a line of
log.jsonl for each evaluation. A second call goes on from the checkpoint. `--minutes` ends it, and `--tiny`
trains a model of a million parameters.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.finetune import texts, tokens
from edgeflock.client.zoo import LanguageModel
from edgeflock.shared.model.token_losses import next_token

SIZES: dict[str, dict[str, int]] = {
    "whole": {"vocabulary": 8192, "width": 512, "blocks": 4, "heads": 8, "context": 128},
    "tiny": {"vocabulary": 1024, "width": 128, "blocks": 4, "heads": 4, "context": 64},
}

BATCH = {"whole": 4, "tiny": 16}
"""Samples of a step. A small batch takes the larger model further in few tokens."""

_HELD = 50
"""Every 50th document is held out."""


def prepare(folder: Path, vocabulary: int) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Return the token ids for (training, validation), and keep them in the folder."""
    kept = folder / f"general-{vocabulary}.npz"
    if not kept.exists():
        texts.unpack(folder)
        documents = texts.general(folder)
        held = documents[::_HELD]
        train = [text for place, text in enumerate(documents) if place % _HELD]
        words = folder / f"vocabulary-{vocabulary}.json"
        if not words.exists():
            tokens.train_vocabulary(train, vocabulary, words)
        arrays = {
            name: np.concatenate(tokens.encode(part, words))
            for name, part in (("train", train), ("held", held))
        }
        np.savez(kept, **arrays)  # type: ignore[arg-type]
    with np.load(kept) as archive:
        return archive["train"], archive["held"]


def draw(ids: NDArray[np.uint16], batch: int, context: int, step: int) -> tuple[Tensor, Tensor]:
    """The (x, y) of a step, each [batch, context]: random windows, the same on every call."""
    starts = np.random.default_rng(step).integers(0, len(ids) - context, batch)
    windows = np.stack([ids[start : start + context + 1] for start in starts]).astype(np.int64)
    return torch.from_numpy(windows[:, :-1]), torch.from_numpy(windows[:, 1:])


def rate(step: int, steps: int, highest: float) -> float:
    """The learning rate: it rises for 100 steps, and falls linearly in the last fifth."""
    return highest * min(1.0, (step + 1) / 100, max(0.02, (steps - step) / (0.2 * steps)))


@torch.no_grad()
def evaluate(model: LanguageModel, ids: NDArray[np.uint16], context: int, samples: int = 128) -> float:
    """The mean loss of evenly spaced windows."""
    x, y = tokens.windows(ids, context)
    chosen = np.linspace(0, len(x) - 1, min(samples, len(x))).astype(int)
    losses = []
    for part in np.array_split(chosen, max(1, len(chosen) // 16)):
        with torch.autocast("cpu", torch.bfloat16):
            loss = next_token(model(torch.from_numpy(x[part])), {"y": torch.from_numpy(y[part])})
        losses.append(loss.item() * len(part))
    return sum(losses) / len(chosen)


def pretrain(
    folder: Path, size: str, steps: int, minutes: float, every: int, highest: float = 1e-3
) -> Iterator[dict[str, Any]]:
    """Train up to `steps` steps or for so many minutes; yield a line for each `every` steps."""
    shape = SIZES[size]
    train, held = prepare(folder, shape["vocabulary"])
    torch.manual_seed(0)
    model = LanguageModel(**shape)
    optimizer = torch.optim.AdamW(model.parameters(), highest, betas=(0.9, 0.95), weight_decay=0.1)
    checkpoint, step = folder / f"{size}.pt", 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    began, losses = time.monotonic(), list[float]()
    while step < steps:
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps, highest)
        x, y = draw(train, BATCH[size], shape["context"], step)
        with torch.autocast("cpu", torch.bfloat16):
            loss = next_token(model(x), {"y": y})
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        step += 1
        over = step == steps or time.monotonic() - began > 60 * minutes
        if step % every == 0 or over:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)
            yield {
                "size": size,
                "step": step,
                "tokens": step * BATCH[size] * shape["context"],
                "loss": round(float(np.mean(losses)), 4),
                "validation": round(evaluate(model, held, shape["context"]), 4),
                "seconds": round(time.monotonic() - began),
            }
            losses.clear()
        if over:
            break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--every", type=int, default=100, help="steps between evaluations and checkpoints")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for line in pretrain(args.folder, "tiny" if args.tiny else "whole", args.steps, args.minutes, args.every):
        print(json.dumps(line), flush=True)
        with open(args.folder / "log.jsonl", "a") as log:
            print(json.dumps(line), file=log)


if __name__ == "__main__":
    main()
