"""Whatever base a device holds, the server's answer makes it equal to the server, bit for bit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeflock.client.training.replica import Replica
from edgeflock.server.coordination.asynchronous import Asynchronous
from edgeflock.server.descent.regime import Regime
from edgeflock.server.descent.step import Index
from edgeflock.server.engine.engine import Engine
from edgeflock.server.journal.journal import Journal
from edgeflock.server.ledger.recovery import recover
from edgeflock.server.publication import Exact
from edgeflock.shared.codecs import sparse
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Model, Update
from tests.server.pushes import commit, dense_update, push, sparse_update

LAYOUT = Layout.from_shapes([("kernel", (8, 9)), ("bias", (8,))])  # 80: differences of up to 10 touches
THETA: NDArray[np.float32] = np.linspace(-1, 1, LAYOUT.size, dtype=np.float32)


def new_engine() -> Engine:
    journal = Journal(Path(":memory:"))
    journal.begin_run("run", "package:Model", LAYOUT, THETA, 0.0)
    parameters = recover(journal, LAYOUT, Regime("adacomp", 0.1, 64))
    return Engine(journal, LAYOUT, parameters, Asynchronous(), publication=Exact(LAYOUT, 0))


def through_the_wire(model: Model) -> Model:
    received = wire.decode(wire.encode(model))
    assert isinstance(received, Model)
    return received


entries = st.dictionaries(st.integers(0, LAYOUT.size - 1), st.floats(-100, 100, width=32), max_size=4)


@given(updates=st.lists(entries | st.none(), max_size=12), data=st.data())
def test_a_replica_of_any_age_catches_up(updates: list[dict[int, float] | None], data: st.DataObject) -> None:
    """Dense updates (None) mixed in; devices that come late, come again, or have seen nothing."""
    engine = new_engine()
    device = engine.device_id("one")
    replicas = [Replica(LAYOUT)]
    for version, changes in enumerate(updates):
        if changes is None:
            update: Update = dense_update(version + 1, version, np.ones(LAYOUT.size, np.float32))
        else:
            update = sparse_update_of(version, changes)
        commit(engine, [push(device, update)])
        newcomer = Replica(LAYOUT)
        newcomer.take(through_the_wire(engine.outlet.model(None)))
        replicas.append(newcomer)
        returning = data.draw(st.sampled_from(replicas))
        returning.take(through_the_wire(engine.outlet.model(returning.version)))
        assert returning.version == engine.published.version
        assert returning.theta.tobytes() == engine.theta()[1].tobytes()
    for replica in replicas:
        replica.take(through_the_wire(engine.outlet.model(replica.version)))
        assert replica.version == engine.published.version
        assert replica.theta.tobytes() == engine.theta()[1].tobytes()


def sparse_update_of(version: int, changes: dict[int, float]) -> Update:
    """As tests.server.pushes.sparse_update, for this module's larger layout."""
    where = np.array(sorted(changes), np.int64)
    delta = np.array([changes[k] for k in where.tolist()], "<f4")
    return replace(
        sparse_update(version + 1, version, {}),
        count=where.size,
        indices=sparse.encode(where, LAYOUT.size),
        values=delta.tobytes(),
    )


def exact_after(*touched: Index) -> Exact:
    differences = Exact(LAYOUT, 100)
    for where in touched:
        differences.add(where)
    return differences


@pytest.mark.parametrize("base", [None, 0, 99, 104, 1 << 62])
def test_a_base_it_cannot_build_on_gets_the_whole_model(base: int | None) -> None:
    differences = exact_after(np.array([1]), np.array([2]), np.array([3]))
    model = differences.model(THETA, base)
    assert (model.version, model.base, model.index_mode) == (103, None, sparse.DENSE)
    assert (model.count, model.indices, model.values) == (LAYOUT.size, b"", THETA.tobytes())


def changed(model: Model) -> list[int]:
    return list(sparse.decode(model.indices, model.count, LAYOUT.size, model.index_mode))


def test_a_difference_is_the_union_of_what_was_touched_since() -> None:
    differences = exact_after(np.array([1, 7]), np.array([7, 79]), np.array([0, 7]))
    for base, touched in ((100, [0, 1, 7, 79]), (101, [0, 7, 79]), (102, [0, 7]), (103, [])):
        model = differences.model(THETA, base)
        assert (model.version, model.base, model.count) == (103, base, len(touched))
        assert not touched or changed(model) == touched
        assert model.values == THETA[touched].tobytes()


def test_however_long_ago_a_base_was_only_what_was_touched_since_is_sent() -> None:
    """A thousand versions, each of which touches one of five parameters."""
    differences = exact_after(np.arange(40, 50), *(np.array([7 * (i % 5)]) for i in range(1000)))
    for base, touched in ((101, [0, 7, 14, 21, 28]), (1097, [7, 14, 21, 28]), (1100, [28]), (1101, [])):
        model = differences.model(THETA, base)
        assert (model.version, model.base, model.count) == (1101, base, len(touched))
        assert not touched or changed(model) == touched
    assert differences.model(THETA, 100).count == 15
    assert differences.model(THETA, 99).base is None, "from before the server started"


def test_the_whole_model_is_sent_where_a_difference_is_much_of_it() -> None:
    """80 values: a difference has 20 at most."""
    differences = exact_after(np.arange(2), np.arange(2, 22))
    whole = differences.model(THETA, 100)
    assert (whole.base, len(whole.values)) == (None, 4 * LAYOUT.size)
    few = differences.model(THETA, 101)
    assert (few.base, few.count) == (101, 20)


def test_devices_that_ask_for_the_same_get_the_same() -> None:
    differences = exact_after(np.arange(2), np.arange(2, 22))
    for base in (100, 101):
        first = differences.model(THETA, base)
        assert differences.model(THETA, base) is first
    differences.add(np.array([3]))
    assert differences.model(THETA, 101).version == 103


def test_versions_that_touched_nothing_cost_nothing() -> None:
    differences = exact_after(np.array([7]), *(np.zeros(0, np.int64) for _ in range(1000)))
    assert len(differences._recent) == 256
    assert (differences.model(THETA, 100).count, differences.model(THETA, 101).count) == (1, 0)
    assert len(wire.encode(differences.model(THETA, 101))) == 8


def test_a_dense_update_ends_all_differences() -> None:
    differences = exact_after(np.array([1]), slice(None))
    assert differences.model(THETA, 100).base is None
    assert differences.model(THETA, 101).base is None
    assert differences.model(THETA, 102).base == 102
    differences.add(np.array([3]))
    assert differences.model(THETA, 102).base == 102


def test_the_whole_model_is_encoded_once_a_version() -> None:
    differences = exact_after()
    first = differences.model(THETA, None)
    assert differences.model(THETA, 7) is first
    differences.add(np.array([0]))
    changed = THETA.copy()
    changed[0] = 5
    assert differences.model(changed, None).values == changed.tobytes()
