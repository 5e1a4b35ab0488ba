"""Ready-made updates, as devices would push them. Nothing of a server is loaded for them."""

import numpy as np

from edgeflock.shared.codecs import entries, grid, sparse, values
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Update
from edgeflock.shared.selection import select_largest

LAYOUT = Layout.from_shapes(
    [
        ("hidden.weight", (64, 288)),
        ("hidden.bias", (64,)),
        ("output.weight", (10, 64)),
        ("output.bias", (10,)),
    ]
)
"""Of 19,146 parameters: what is killed and cut off pushes these."""


def random_update(layout: Layout, fraction: float, coding: str, random: np.random.Generator) -> Update:
    """An update as a device would make it from a Gaussian gradient. At fraction 1 it is dense.

    "scale" stands for a grid, which does not take Gaussian gradients at fractions below 1/64.
    """
    gradient = random.standard_normal(layout.size).astype(np.float32) * np.float32(1e-3)
    if fraction >= 1:
        octets = values.encode(gradient, layout.counts(None), coding)
        return Update(
            1, 0, sparse.DENSE, values.CODINGS[coding].mode, layout.size, b"", octets, 0.5, 10, False
        )
    where = select_largest(gradient, layout, fraction)
    mode: int = sparse.GOLOMB
    indices = sparse.encode(where, layout.size)
    if coding == "scale":
        mode, signed = sparse.GRID, grid.encode(where, gradient[where] < 0, layout)
        assert signed is not None
        indices = signed
    return Update(
        sequence=1,
        base=0,
        index_mode=mode,
        value_mode=values.CODINGS[coding].mode,
        count=where.size,
        indices=indices,
        values=values.encode(gradient[where], layout.counts(where), coding),
        loss=0.5,
        samples=10,
        pull=False,
    )


def record_update(layout: Layout, random: np.random.Generator) -> Update:
    """Return an update of the record that asks for an answer, of a gradient like that of ten samples.

    For each tensor it is a sum of outer products, in which most rows and columns are 0.
    """
    parts = []
    for shape in layout.grids.tolist():
        left, right = (random.standard_normal((10, n)) * (random.random((10, n)) < 0.3) for n in shape)
        parts.append((left.T @ right).ravel())
    gradient = np.concatenate(parts).astype(np.float32) * np.float32(1e-3)
    where = select_largest(gradient, layout, 0.0005, 0.5)
    scale = values.CODINGS["scale"].mode
    coded = entries.encode(gradient[where], where, layout, sparse.GRID, scale)
    return Update(1, 0, *coded[:2], where.size, *coded[2:], 0.5, 20, True)
