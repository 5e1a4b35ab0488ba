"""Low-rank fine-tuning: devices train adapters of a model whose own parameters are frozen (model.lora).

E. J. Hu et al., "LoRA: low-rank adaptation of large language models", ICLR 2022, equation 3:

    h = W x + (alpha / rank) B A x

W, the frozen weight, is [out, in]; A is [rank, in], B is [out, rank]. theta has the adapters A and B alone.
All else that a module keeps in tensors is the base: its parameters, then its running statistics. A begins
with draws from the run's seed, uniform within 1 / sqrt(in) as in the authors' code, and B with zeros, so that
the first model is the base.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgeflock.shared.errors import Malformed
from edgeflock.shared.model.base_file import BaseFile, Octets, Vector, decode, encode
from edgeflock.shared.model.layout import ExtraState, Layout
from edgeflock.shared.model.start import CONSTANT, UNIFORM, Filling, Start

A, B = ".lora_A", ".lora_B"
"""What follows a layer's name in the names of its two adapters."""

_DIGEST = 32


class Lora(NamedTuple):
    """What is adapted, and how."""

    rank: int
    alpha: float
    targets: tuple[str, ...]
    """Names of linear layers, or patterns such as *.q."""
    int8: bool = False
    """Whether frozen matrices have eight bits (base_file.py)."""

    @property
    def scale(self) -> float:
        """What B A x is multiplied by."""
        return self.alpha / self.rank


class Base(NamedTuple):
    """The frozen part of a run's model, as a Welcome describes it. Devices download it once."""

    shapes: list[object]
    """[[name, [dimension, ...]], ...], as Layout.shapes."""
    digest: bytes
    """SHA-256 of the file, 32 bytes."""
    scale: float
    """alpha / rank."""
    int8: bool
    """Whether matrices have eight bits."""

    @classmethod
    def from_msgpack(cls, value: object, name: str = "base") -> "Base":
        """Parse [shapes, digest, scale, int8] as unpacked from msgpack. Raises Malformed."""
        if type(value) is not list or [type(field) for field in value] != [list, bytes, float, bool]:
            raise Malformed(f"{name} must be [shapes, digest, scale, int8]")
        base = cls(*value)
        if len(base.digest) != _DIGEST or not 0 < base.scale < math.inf:
            raise Malformed(f"{name} must have a digest of {_DIGEST} bytes, and a scale above 0")
        return base

    @property
    def layout(self) -> Layout:
        return Layout.from_shapes(self.shapes)  # type: ignore[arg-type]  # terms.py has checked it

    def at(self, path: Path) -> BaseFile:
        """Return the base at this path."""
        return BaseFile(path.resolve(), self.layout, self.int8)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.at(Path()).size

    def lora(self, adapters: Layout) -> Lora:
        """Return how to build the model whose layout is `adapters`."""
        layers = adapted_layers(adapters)
        rank = next((t.shape[0] for t in adapters.tensors if t.name.endswith(A) and t.shape), 1)
        return Lora(rank, self.scale * rank, layers, self.int8)


class Adapted(NamedTuple):
    """A model with adapters, as its server holds it."""

    layout: Layout
    """That of the base: parameters, then running statistics."""
    theta: Vector
    """The base that devices compute with, float32 [P + B]."""
    file: Octets
    """The bytes of its file."""
    adapters: Layout
    lora: Lora

    @classmethod
    def from_theta(cls, layout: Layout, theta: Vector, adapters: Layout, lora: Lora) -> "Adapted":
        """Adapt the base `theta`, float32 [P + B], which is rounded if it has eight bits."""
        file = encode(layout, theta, int8=lora.int8)
        return cls(layout, decode(layout, file, int8=lora.int8), file, adapters, lora)

    def write(self, path: Path) -> BaseFile:
        """Write the base's file, as devices have it."""
        self.file.tofile(path)
        return BaseFile(path.resolve(), self.layout, self.lora.int8)

    def describe(self, digest: bytes) -> Base:
        """Describe the base, whose file has this digest."""
        return Base(list(self.layout.shapes()), digest, self.lora.scale, self.lora.int8)

    def summary(self) -> dict[str, Any]:
        """Describe the adapters for people and other tools."""
        lora = self.describe(b"").lora(self.adapters)
        return {"rank": lora.rank, "alpha": lora.alpha, "layers": [*lora.targets]}

    def merge(self, theta: Vector) -> Vector:
        """Return the base with W + scale B A in place of each W that has adapters: a new float32 [P + B]."""
        merged = self.theta.copy()
        weights = {tensor.name: tensor for tensor in self.layout.tensors}
        parts = self.split(theta)
        for layer in adapted_layers(self.adapters):
            weight = weights[f"{layer}.weight"]
            change = np.float32(self.lora.scale) * (parts[layer + B] @ parts[layer + A])
            merged[weight.start : weight.stop] += change.ravel()
        return merged

    def split(self, theta: Vector) -> dict[str, Vector]:
        """Return the adapters of theta by name, as views."""
        return {t.name: theta[t.start : t.stop].reshape(t.shape) for t in self.adapters.tensors}


def whole_model(adapted: Adapted | None, theta: Vector, extra: ExtraState) -> tuple[Vector, ExtraState]:
    """Return (theta, the other tensors) of a model's file: adapters are merged, and kept by name as well."""
    if adapted is None:
        return theta, extra
    return adapted.merge(theta), extra._replace(constants={**extra.constants, **adapted.split(theta)})


def is_adapter(name: str) -> bool:
    """Whether a tensor of this name is an adapter."""
    return name.endswith((A, B))


def adapted_layers(adapters: Layout) -> tuple[str, ...]:
    """Return the names of the layers that have adapters."""
    return tuple(t.name.removesuffix(A) for t in adapters.tensors if t.name.endswith(A))


def first_adapters(adapters: Layout, seed: int) -> Start:
    """Return how to make the first adapters."""
    zero = Filling(CONSTANT, 0.0, 0.0)

    def draws(inputs: int) -> Filling:
        bound = float(np.float32(1 / math.sqrt(inputs)))
        return Filling(UNIFORM, -bound, bound)

    return Start(seed, tuple(draws(t.shape[1]) if t.name.endswith(A) else zero for t in adapters.tensors))
