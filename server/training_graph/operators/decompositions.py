"""Functions of torch that are traced as others, since an operator in them has no translation.

Each replacement computes the same values with operators that have one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def _weight_norm(v: Tensor, g: Tensor, axis: int = 0) -> Tensor:
    """T. Salimans and D. Kingma, "Weight normalization", 2016: w = g v / |v|."""
    return v * (g / torch.norm_except_dim(v, 2, axis))


def _bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    product = torch.einsum("...i,oij,...j->...o", x, weight, y)
    return product if bias is None else product + bias


def _adaptive_maxima(pool: Callable[..., Tensor], axes: int) -> Callable[..., Tensor | None]:
    """If all windows are equal, an adaptive pool is an ordinary pool."""

    def replaced(
        x: Tensor, outs: int | None | Sequence[int | None], return_indices: bool = False
    ) -> Tensor | None:
        sizes = x.shape[-axes:]
        counts_given = outs if isinstance(outs, Sequence) else [outs] * axes
        counts = [size if out is None else out for size, out in zip(sizes, counts_given, strict=True)]
        if return_indices or any(size % count for size, count in zip(sizes, counts, strict=True)):
            return None
        return pool(x, [size // count for size, count in zip(sizes, counts, strict=True)])

    return replaced


REPLACEMENTS: dict[Callable[..., Any], Callable[..., Tensor | None]] = {
    torch._weight_norm: _weight_norm,
    torch.bilinear: _bilinear,
    functional.adaptive_max_pool1d: _adaptive_maxima(functional.max_pool1d, 1),
    functional.adaptive_max_pool2d: _adaptive_maxima(functional.max_pool2d, 2),
    functional.adaptive_max_pool3d: _adaptive_maxima(functional.max_pool3d, 3),
}
"""The replacements return the result, or None where they do not apply."""
