"""An update's bytes are those that the run asks for."""

from dataclasses import replace

import numpy as np
import pytest

from edgeflock.shared.codecs import grid, sparse, values
from tests.client.training.fakes import (
    F32,
    LAYOUT,
    WELCOME,
    FakeBackend,
    FakeServer,
    gradient_at,
    theta_at,
    worker,
)


async def test_an_update_holds_the_largest_fraction_of_each_tensor() -> None:
    """c = 0.2 of 10 and of 4: two and one. At version 3 the gradient is +3, -4, +5, ... -16."""
    server = FakeServer([])
    await worker(server, FakeBackend()).run()
    (update,) = server.updates
    assert (update.index_mode, update.value_mode, update.count) == (sparse.RAW, F32, 3)
    assert np.frombuffer(update.indices, "<u4").tolist() == [8, 9, 13]
    assert np.frombuffer(update.values, "<f4").tolist() == [11, -12, -16]
    assert update.pull
    assert update.samples == 6
    assert update.loss == 1.5


@pytest.mark.parametrize("coding", [coding for coding in values.CODINGS if coding != "scale"])
@pytest.mark.parametrize("indices", [indices for indices in sparse.CODINGS if indices != "grid"])
async def test_an_update_is_coded_as_the_run_asks(coding: str, indices: str) -> None:
    welcome = replace(WELCOME, indices=sparse.CODINGS[indices].mode, values=values.CODINGS[coding].mode)
    server = FakeServer([], welcome)
    await worker(server, FakeBackend()).run()
    (update,) = server.updates
    assert (update.index_mode, update.value_mode) == (welcome.indices, welcome.values)
    where = sparse.decode(update.indices, update.count, LAYOUT.size, update.index_mode)
    delta = values.decode(update.values, LAYOUT.counts(where), update.value_mode)
    assert where.tolist() == [8, 9, 13]
    assert np.sign(delta).tolist() == [1, -1, -1]
    assert np.abs(delta).tolist() == pytest.approx([11, 12, 16], rel=0.1)


SIGNED = replace(WELCOME, indices=sparse.GRID, values=values.CODINGS["scale"].mode)


def modes_of(indices: str, coding: str) -> tuple[int, int]:
    index_mode = sparse.DENSE if indices == "dense" else sparse.CODINGS[indices].mode
    return index_mode, values.CODINGS[coding].mode


async def test_a_grid_carries_the_signs() -> None:
    server = FakeServer([], SIGNED)
    await worker(server, FakeBackend()).run()
    (update,) = server.updates
    assert (update.index_mode, update.value_mode) == modes_of("grid", "scale")
    where, negative = grid.decode(update.indices, update.count, LAYOUT)
    assert (where.tolist(), negative.tolist()) == ([8, 9, 13], [False, True, True])
    scales = values.decode(update.values, LAYOUT.counts(where), update.value_mode)
    assert scales.tolist() == pytest.approx([11.5, 11.5, 16], rel=2 ** (1 / 16) - 1)


async def test_a_dense_update_has_sign_bits_instead_of_a_grid() -> None:
    server = FakeServer([], replace(SIGNED, select=1.0))
    await worker(server, FakeBackend()).run()
    (update,) = server.updates
    assert (update.index_mode, update.value_mode) == modes_of("dense", "sign")


async def test_a_grid_that_does_not_fit_is_golomb_coded_with_sign_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Entries too scattered, or a stream longer than that would be."""
    server = FakeServer([None, None], SIGNED)
    streams = iter([bytes(9), None, None])
    monkeypatch.setattr(grid, "encode", lambda *update: next(streams))
    await worker(server, FakeBackend()).run()
    assert len(server.updates) == 3
    for update in server.updates:
        assert (update.index_mode, update.value_mode) == modes_of("golomb", "sign")
        where = sparse.decode(update.indices, update.count, LAYOUT.size, sparse.GOLOMB)
        delta = values.decode(update.values, LAYOUT.counts(where), update.value_mode)
        assert np.sign(delta).tolist() == [1 - 2 * (k % 2) for k in where.tolist()]


async def test_all_of_it_is_a_dense_update() -> None:
    server = FakeServer([], replace(WELCOME, select=1.0))
    await worker(server, FakeBackend()).run()
    (update,) = server.updates
    assert (update.index_mode, update.count, update.indices) == (sparse.DENSE, LAYOUT.size, b"")
    assert update.values == gradient_at(theta_at(3)).tobytes()
