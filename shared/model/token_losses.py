"""The loss of language models: cross entropy over a large vocabulary, in chunks of positions.

Only the logits of one chunk exist at a time, and none is kept for the backward pass.
"""

from typing import Any

import torch
from torch import Tensor

_CHUNK = 16
"""The positions of a chunk, for all texts of a batch."""


def next_token(output: tuple[Tensor, Tensor], batch: dict[str, Tensor]) -> Tensor:
    """The mean cross entropy of the next tokens y [b, t]; output is (features [b, t, d], head [v, d])."""
    return _ChunkedCrossEntropy.apply(*output, batch["y"])  # type: ignore[no-any-return, no-untyped-call]


def right_tokens(output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    """Which of the next tokens [b, t] are the most likely ones."""
    features, head = output
    return torch.cat([(part @ head.T).argmax(2) for part in torch.split(features, _CHUNK, 1)], 1) == target


class _ChunkedCrossEntropy(torch.autograd.Function):
    """The forward pass computes the gradients, too, so that a chunk's logits are computed once."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, head: Tensor, target: Tensor) -> Tensor:
        learning, head_learning = ctx.needs_input_grad[:2]
        total = features.new_zeros(())
        by_features: list[Tensor] = []
        by_head = torch.zeros_like(head) if head_learning else None
        for part, tokens in zip(
            torch.split(features, _CHUNK, 1), torch.split(target, _CHUNK, 1), strict=True
        ):
            log_p = (part @ head.T).log_softmax(2)
            of_target = log_p.gather(2, tokens.unsqueeze(2))
            total = total - of_target.sum()
            if learning or head_learning:
                by_logits = log_p.exp_().scatter_(2, tokens.unsqueeze(2), of_target.exp() - 1)
                by_features.append(by_logits @ head)
                if by_head is not None:
                    by_head = by_head + by_logits.flatten(0, 1).T @ part.flatten(0, 1)
        ctx.count = target.numel()
        ctx.by_features, ctx.by_head = (torch.cat(by_features, 1) if learning else None), by_head
        return total / target.numel()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        g = g / ctx.count
        scaled = (None if grad is None else grad * g for grad in (ctx.by_features, ctx.by_head))
        return next(scaled), next(scaled), None
