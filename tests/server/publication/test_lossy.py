"""Both ends hold the same, to the last bit, whatever is lost; and what they hold comes close to the model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeflock.client.training.replica import Replica
from edgeflock.server.publication import Lossy
from edgeflock.server.publication.copies import Copies
from edgeflock.server.publication.spill import Spill
from edgeflock.shared.codecs import entries, sparse, values
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Model, Receipt
from edgeflock.shared.settings.traffic import DownlinkSettings

LAYOUT = Layout.from_shapes([("kernel", (40, 50)), ("bias", (40,))])
NORMED = Layout.from_shapes(
    [("kernel", (40, 50)), ("bias", (40,)), ("mean", (40,), True), ("variance", (40,), True)]
)
TERMS = DownlinkSettings(mode="lossy", select=0.02, share=0.02)
EVERYWHERE = slice(None)

Vector = NDArray[np.float32]


class Fleet:
    """A model that moves, and devices that pull it now and then."""

    def __init__(
        self,
        layout: Layout = LAYOUT,
        terms: DownlinkSettings = TERMS,
        *,
        devices: int = 3,
        most: int = 100,
        known: bool = True,
        disk: int = 1 << 24,
        patience: int = 0,
        lag: int = 0,
    ) -> None:
        """`known`: every device can make the first model by itself."""
        self.layout, self.known = layout, known
        self._random = np.random.default_rng(5)
        self.theta: Vector = self._random.standard_normal(layout.size).astype(np.float32)
        self.start = self.theta.copy()
        self.version = 0
        first = self.start[: layout.parameters.size].copy() if known else None
        self.copies = Copies(layout.parameters, first, most, Spill(None, layout.parameters.size, disk))
        self.lossy = Lossy(layout, 0, self.copies, terms, patience, lag)
        self.replicas = {device: self.newcomer() for device in range(1, devices + 1)}

    def newcomer(self) -> Replica:
        replica = Replica(self.layout)
        if self.known:
            replica.theta, replica.version = self.start.copy(), 0
        return replica

    def restart(self) -> None:
        """The server's memory of what devices hold is gone."""
        self.copies = Copies(self.layout.parameters, None, 100, Spill(None, self.layout.parameters.size, 0))
        self.lossy = Lossy(self.layout, self.version, self.copies, TERMS)

    def move(self, versions: int = 1, by: float = 0.1) -> None:
        for _ in range(versions):
            self.theta += (by * self._random.standard_normal(self.layout.size) ** 3).astype(np.float32)
            self.version += 1
            self.lossy.add(EVERYWHERE)

    def answer(self, device: int, replica: Replica | None = None) -> Model:
        replica = replica or self.replicas[device]
        sent = self.lossy.model(self.theta, replica.version, replica.held, device)
        received = wire.decode(wire.encode(sent))
        assert isinstance(received, Model)
        return received

    def pull(self, device: int) -> Model:
        model = self.answer(device)
        self.replicas[device].take(model)
        return model

    def gap(self, device: int) -> float:
        """How far the device is from the model, as a part of it."""
        p = self.layout.parameters.size
        return float(
            np.linalg.norm(self.theta[:p] - self.replicas[device].theta[:p]) / np.linalg.norm(self.theta[:p])
        )

    def agree(self, device: int) -> bool:
        """Whether the server knows what the device holds, bit for bit."""
        replica = self.replicas[device]
        copy = self.copies.find(device, replica.version, replica.held)
        trained = replica.theta[: self.layout.parameters.size]
        return copy is not None and copy.values.tobytes() == trained.tobytes()


doings = st.lists(
    st.tuples(st.sampled_from(["move", "still", "pull", "lost", "leap", "nothing new"]), st.integers(1, 3)),
    max_size=40,
)


@settings(deadline=None)
@given(doings=doings, most=st.integers(3, 6), known=st.booleans(), disk=st.sampled_from([0, 20_000, 1 << 24]))
def test_both_ends_hold_the_same(doings: list[tuple[str, int]], most: int, known: bool, disk: int) -> None:
    """Answers that never arrive, memory for few copies, first models that are known or not."""
    fleet = Fleet(most=most, known=known, disk=disk)
    for doing, device in doings:
        if doing in ("move", "still"):
            fleet.move(by=0.1 if doing == "move" else 0)
        elif doing == "leap":
            fleet.move(by=50)
        elif doing == "lost":
            fleet.answer(device)
        else:
            fleet.pull(device)
            assert fleet.replicas[device].version == fleet.version
            assert fleet.agree(device)
    for device in fleet.replicas:
        fleet.pull(device)
        assert fleet.agree(device)


@settings(deadline=None)
@given(doings=doings, known=st.booleans(), patience=st.integers(1, 20))
def test_both_ends_hold_the_same_where_devices_begin_with_an_older_model(
    doings: list[tuple[str, int]], known: bool, patience: int
) -> None:
    fleet = Fleet(known=known, patience=patience)
    fleet.move(30)
    for doing, device in doings:
        if doing in ("move", "still"):
            fleet.move(by=0.1 if doing == "move" else 0)
        elif doing == "lost":
            fleet.answer(device)
        else:
            fleet.pull(device)
            version = fleet.replicas[device].version
            assert version is not None
            assert fleet.version - patience <= version <= fleet.version
            assert fleet.agree(device)
    for device in fleet.replicas:
        fleet.pull(device)
        fleet.pull(device)
        assert fleet.replicas[device].version == fleet.version
        assert fleet.agree(device)


@pytest.mark.parametrize("known", [True, False])
def test_what_many_devices_begin_with_is_made_anew_every_few_versions(known: bool) -> None:
    """A whole model, or a long way from the first one: one that is somewhat old will do."""
    fleet = Fleet(devices=21, known=known, patience=5)
    for _ in range(200):
        fleet.move()
        fleet.pull(21)
    versions = []
    for device in range(1, 21):
        versions.append(fleet.pull(device).version)
        fleet.move()
    assert sorted(set(versions)) == [200, 206, 212, 218]
    assert {fleet.pull(device).version for device in fleet.replicas} == {fleet.version}


def test_a_first_short_step_is_never_an_old_one() -> None:
    fleet = Fleet(patience=5)
    fleet.pull(1)
    for device in fleet.replicas:
        fleet.theta[device] += 1
        fleet.version += 1
        fleet.lossy.add(np.array([device]))
        assert fleet.pull(device).version == fleet.version


def test_a_step_is_a_small_part_and_what_is_left_out_comes_later() -> None:
    fleet = Fleet(devices=1)
    whole = values.CODINGS["f32"].size(LAYOUT.size, 2)
    fleet.move(10)
    first = fleet.pull(1)
    assert first.changes
    assert len(first.indices) + len(first.values) < whole / 50
    left = fleet.gap(1)
    assert 0 < left
    gaps = []
    for _ in range(400):
        fleet.move(by=0.0)
        fleet.pull(1)
        gaps.append(fleet.gap(1))
    assert gaps[-1] < left / 20
    assert gaps == pytest.approx(sorted(gaps, reverse=True), rel=0.2), "nothing is ever lost again"


def test_the_thresholds_find_the_fraction() -> None:
    fleet = Fleet(devices=5)
    counts = []
    for turn in range(400):
        fleet.move()
        counts.append(fleet.pull(turn % 5 + 1).count)
    assert np.mean(counts[200:]) == pytest.approx(0.02 * LAYOUT.size, rel=0.2)


def test_a_device_that_was_away_gets_what_it_missed() -> None:
    fleet = Fleet(devices=3)
    for turn in range(200):
        fleet.move()
        fleet.pull(turn % 2 + 1)
    usual = fleet.gap(1)
    missed = fleet.pull(3)
    assert missed.base == 0
    assert missed.count > 8 * 0.02 * LAYOUT.size
    assert fleet.gap(3) < 2 * usual
    assert len(missed.indices) + len(missed.values) < 4 * LAYOUT.size / 4


def test_a_device_that_comes_rarely_gets_nearly_all_that_it_lacks() -> None:
    fleet, rare = Fleet(devices=4, terms=TERMS.model_copy(update={"share": 0.3}), lag=100), 4
    remaining, usual = [], []
    for turn in range(600):
        fleet.move()
        if turn % 40 == 39:
            before = fleet.gap(rare)
            fleet.pull(rare)
            remaining.append((fleet.gap(rare) / before) ** 2)
            assert fleet.agree(rare)
        usual.append(fleet.pull(turn % 3 + 1).count)
    assert max(remaining[3:]) < 0.05
    assert np.mean(usual[300:]) < 0.1 * LAYOUT.size


def test_nothing_new_is_next_to_nothing() -> None:
    fleet = Fleet()
    assert len(wire.encode(fleet.answer(1))) == 4
    fleet.move()
    fleet.pull(1)
    again = fleet.pull(1)
    assert again.count == 0
    assert len(wire.encode(again)) == 4
    assert len(wire.encode(Receipt(3, again.version, again))) == 7
    assert fleet.agree(1)


def test_a_server_that_was_restarted_sends_the_whole_model_in_a_byte_a_parameter() -> None:
    fleet = Fleet()
    fleet.move(5)
    fleet.pull(1)
    fleet.restart()
    model = fleet.pull(1)
    assert model.base is None
    assert len(model.values) < 1.01 * LAYOUT.size
    assert fleet.gap(1) < 0.03
    fleet.move()
    assert fleet.pull(1).changes
    assert fleet.agree(1)


def test_a_model_that_eight_bits_would_spoil_comes_in_sixteen() -> None:
    fleet = Fleet(known=False)
    fleet.theta[7] = 1000
    assert fleet.pull(1).value_mode == values.CODINGS["f16"].mode
    assert fleet.gap(1) < 0.001
    assert fleet.agree(1)


def test_another_device_of_the_same_name_does_not_get_the_differences_of_the_first() -> None:
    """It holds the same version, but not what the server thinks."""
    fleet = Fleet()
    fleet.move()
    fleet.pull(1)
    fleet.move()
    pretender = Replica(LAYOUT)
    pretender.theta, pretender.version = fleet.start.copy(), 1
    model = fleet.answer(1, pretender)
    assert model.base is None
    pretender.take(model)
    assert fleet.pull(1).base is None, "nor has it any more"


def test_devices_in_step_share_a_copy_and_an_answer() -> None:
    fleet = Fleet(devices=50)
    for _ in range(5):
        fleet.move()
        models = [fleet.pull(device) for device in fleet.replicas]
        assert all(model == models[0] for model in models)
        assert len(fleet.copies._in_memory) <= 2
    fleet.move()
    one = fleet.pull(1)
    fleet.move()
    assert fleet.pull(1) != one
    for device in (2, 3):
        fleet.pull(device)
        assert fleet.agree(device)


def test_a_step_from_what_a_copy_was_is_not_sent_once_it_has_moved_on() -> None:
    """Two devices begin with the same whole model at versions that changed nothing between (of a buffer);
    then the one comes to the other's version.
    """
    fleet = Fleet(devices=2)
    fleet.restart()
    fleet.pull(1)
    fleet.move(by=0)
    fleet.pull(1)  # what the coding of the whole model left out
    assert fleet.pull(2).base is None
    fleet.move()
    for device in (2, 2, 1, 1):
        fleet.pull(device)
        assert fleet.agree(device)


def test_devices_in_step_share_a_copy_after_a_restart_as_well() -> None:
    fleet = Fleet(devices=50)
    fleet.move()
    fleet.restart()
    for _ in range(3):
        for device in fleet.replicas:
            fleet.pull(device)
            assert fleet.agree(device)
        assert len(fleet.copies._in_memory) <= 2
        fleet.move()


def test_what_memory_has_no_room_for_is_in_a_file() -> None:
    fleet = Fleet(devices=20, most=4)
    for turn in range(100):
        fleet.move()
        assert fleet.pull(turn % 20 + 1).changes
        assert len(fleet.copies._in_memory) <= 4
    assert all(fleet.agree(device) for device in fleet.replicas)


def test_what_the_file_has_no_room_for_is_forgotten_longest_absent_first() -> None:
    fleet = Fleet(devices=10, most=3, disk=4 * 4 * LAYOUT.size)
    for device in fleet.replicas:
        fleet.move()
        fleet.pull(device)
        fleet.move()
        fleet.pull(device)
    fleet.move()
    assert [device for device in (10, 9, 8, 1) if fleet.pull(device).base is None] == [1]


def test_running_statistics_come_along_now_and_then() -> None:
    fleet = Fleet(NORMED, devices=1)
    statistics = slice(NORMED.parameters.size, None)
    brought = 0
    for _ in range(40):
        fleet.move()
        before = fleet.replicas[1].theta[statistics].copy()
        fleet.pull(1)
        now = fleet.replicas[1].theta[statistics]
        if (now != before).any():
            brought += 1
            assert np.allclose(now, fleet.theta[statistics], rtol=1e-3, atol=1e-3)
    assert brought == 2


@pytest.mark.parametrize("coding", ["codebook4", "int8", "f16"])
def test_any_coding_will_do(coding: str) -> None:
    fleet = Fleet(terms=replace_terms(coding))
    for _ in range(3):
        fleet.move()
        fleet.pull(1)
        assert fleet.agree(1)


def replace_terms(coding: str) -> DownlinkSettings:
    return DownlinkSettings(mode="lossy", select=0.02, values=coding)


def test_a_device_refuses_a_step_on_what_it_does_not_hold() -> None:
    fleet = Fleet()
    fleet.move()
    model = fleet.pull(1)
    before = fleet.replicas[1].theta.tobytes()
    with pytest.raises(Exception, match="from version 0, this device holds 1"):
        fleet.replicas[1].take(model)
    fleet.move()
    model = fleet.answer(1)
    with pytest.raises(Exception, match="take"):
        fleet.replicas[1].take(replace(model, values=model.values + b"\0"))
    assert fleet.replicas[1].theta.tobytes() == before
    fleet.replicas[1].take(model)


def test_steps_are_coded_along_what_was_active_until_the_model_comes_whole() -> None:
    """Of each device that, also if others hold the same, and if a step is lost on the way."""
    fleet = Fleet(devices=2)
    random = np.random.default_rng(3)

    def move() -> None:
        """A few rows and columns."""
        kernel = fleet.theta[:2000].reshape(40, 50)
        kernel[3::9, 5::6] += random.standard_normal((5, 8))
        fleet.version += 1
        fleet.lossy.add(EVERYWHERE)

    def as_if_nothing_was_active(model: Model) -> bool:
        where, change = decoded(model, fleet.replicas[2])
        return entries.encode(change, where, LAYOUT, *model_modes)[2:] == (model.indices, model.values)

    model_modes = sparse.GRID, values.CODINGS["scale"].mode
    move()
    assert as_if_nothing_was_active(fleet.answer(2))
    assert fleet.pull(1) == fleet.pull(2)
    move()
    lost, arrived = fleet.answer(1), fleet.answer(2)
    assert lost == arrived
    assert not as_if_nothing_was_active(arrived)
    fleet.replicas[2].take(arrived)
    for device in (1, 2):
        move()
        fleet.pull(device)
        assert fleet.agree(device)
    fleet.restart()
    assert fleet.pull(2).base is None
    move()
    assert as_if_nothing_was_active(fleet.answer(2))


def decoded(model: Model, replica: Replica) -> tuple[NDArray[np.int64], Vector]:
    """(where, values) of a step on what `replica` holds."""
    coded = model.index_mode, model.value_mode, model.count, model.indices, model.values
    where, change = entries.decode(*coded, LAYOUT, replica._activity)
    assert not isinstance(where, slice)
    return where, change


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_model_that_has_diverged_is_seen_by_devices(bad: float) -> None:
    fleet = Fleet()
    fleet.move()
    fleet.pull(1)
    fleet.move()
    fleet.theta[5] = bad
    assert fleet.pull(1).base is None
    assert not np.isfinite(fleet.replicas[1].theta).all()


def test_differences_far_too_large_for_their_squares_are_sent_all_the_same() -> None:
    fleet = Fleet()
    fleet.move()
    fleet.pull(1)
    fleet.theta[5] = 1e30
    fleet.move()
    assert fleet.pull(1).changes
    assert fleet.agree(1)


@pytest.mark.filterwarnings("error")
def test_long_steps_are_as_exact_as_the_run_asks() -> None:
    fleet = Fleet(terms=replace_terms("f32"), devices=2)
    for _ in range(100):
        fleet.move()
        fleet.pull(1)
    assert fleet.pull(2).count > 8 * 0.02 * LAYOUT.size
    assert fleet.gap(2) < 2 * fleet.gap(1)


def test_no_file_without_need(tmp_path: Path) -> None:
    spill = Spill(tmp_path, 10, 80)
    one, two = (np.full(10, number, np.float32) for number in (1, 2))
    assert [spill.put(one), spill.put(two), spill.put(one)] == [0, 1, None]
    assert np.array_equal(spill.take(1), two)  # type: ignore[arg-type]
    assert spill.put(one) == 1
    assert list(tmp_path.iterdir()) == [], "it has no name"
    spill.close()
