"""Devices that lie about what they hold, or ask without end: what they cost, and whom."""

import gc
import tracemalloc

import numpy as np
import pytest

from edgeflock.client.training.replica import Replica
from edgeflock.server.publication.copies import Copy
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Model
from edgeflock.shared.settings.traffic import DownlinkSettings
from tests.server.publication.test_lossy import LAYOUT, Fleet

BYTES = 4 * LAYOUT.size


def asks(fleet: Fleet, device: int, base: int | None, held: int) -> Model:
    return fleet.lossy.model(fleet.theta, base, held, device)


def test_whoever_says_what_it_does_not_hold_gets_a_whole_model() -> None:
    fleet = Fleet()
    for _ in range(3):
        fleet.move()
        fleet.pull(1)
    held = fleet.replicas[1].held
    for base, said in ((3, held ^ 1), (2, held), (0, held), (1 << 62, held), (None, held), (3, 1 << 62)):
        for device in (1, 2):
            assert asks(fleet, device, base, said).base is None
    assert asks(fleet, 7, 3, held).base is None, "it is another device's"


def test_a_guess_that_hits_harms_only_who_guessed() -> None:
    """The 16 bits keep mistakes apart, not liars: no other device is touched."""
    fleet = Fleet()
    for _ in range(3):
        fleet.move()
        for device in fleet.replicas:
            fleet.pull(device)
    assert asks(fleet, 2, 3, fleet.replicas[2].held).changes
    fleet.move()
    assert all(fleet.pull(device).changes and fleet.agree(device) for device in fleet.replicas)


def test_the_first_model_again_and_again_is_computed_once_a_version() -> None:
    fleet = Fleet()
    fleet.move(50)
    first = asks(fleet, 1, 0, 0)
    assert all(asks(fleet, device, 0, 0) is first for device in range(1, 200))


def test_who_asks_for_the_first_model_again_and_again_does_not_starve_the_others() -> None:
    """The thresholds follow what the others need."""

    def sent(liars: bool) -> float:
        fleet, counts = Fleet(devices=5), []
        for turn in range(400):
            fleet.move()
            if liars:
                asks(fleet, 6, 0, 0)
            counts.append(fleet.pull(turn % 5 + 1).count)
        return float(np.mean(counts[200:]))

    assert sent(liars=True) > 0.5 * sent(liars=False)


def test_one_leaves_a_copy_that_another_was_sent_to_as_well() -> None:
    """Neither the room nor the file may have an end of it that is still needed."""
    fleet = Fleet(devices=12, most=3)
    fleet.move()
    for device in (1, 2):
        fleet.pull(device)  # both are sent the same step
    fleet.move()
    fleet.pull(1)  # has it: a copy of its own
    for device in range(3, 9):  # which goes to the file
        fleet.replicas[device] = Replica(LAYOUT)
        fleet.pull(device)
    fleet.replicas[1] = Replica(LAYOUT)
    fleet.pull(1)  # and is nobody's
    assert len(fleet.copies._in_memory) <= 3
    fleet.pull(2)
    assert fleet.agree(2)
    fleet.move()
    fleet.pull(2)
    assert fleet.agree(2)


def test_a_copy_that_was_left_counts_once_it_is_held_again() -> None:
    fleet = Fleet(devices=40, most=3, disk=0)
    for left in range(1, 40, 2):
        fleet.move()
        fleet.pull(left)
        fleet.pull(left + 1)
        fleet.move()
        fleet.pull(left)
        fleet.replicas[left] = Replica(LAYOUT)
        fleet.pull(left)
        fleet.pull(left + 1)
    held = {known.copy for known in fleet.copies._devices.values()}
    assert sum(copy.values.size > 0 for copy in held) <= 3 + 1, "in memory: three, and the first"


def test_what_is_under_way_counts_as_memory() -> None:
    """Many devices that ask once, far behind, and never come back."""
    most = 5
    fleet = Fleet(devices=0, most=most, disk=0)
    fleet.move()
    asks(fleet, 1, 0, 0)
    fleet.move(by=50)
    tracemalloc.start()
    for device in range(2, 202):
        fleet.move()
        asks(fleet, device, 0, 0)
    gc.collect()
    now, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert now < 3 * most * BYTES


def test_one_step_to_many_devices_counts_as_memory_once() -> None:
    fleet = Fleet(devices=200, most=5)
    fleet.move(20, by=5)
    step = fleet.pull(1)
    assert 200 * 12 * step.count > 5 * LAYOUT.size, "more than there is room for"
    assert all(fleet.pull(device) == step for device in fleet.replicas if device > 1)
    fleet.move()
    assert all(fleet.pull(device).base == 20 for device in fleet.replicas), "nobody was forgotten"


def test_a_step_that_somebody_never_takes_does_not_keep_the_copy_that_others_left() -> None:
    most = 3
    fleet = Fleet(Layout.from_shapes([("kernel", (100, 100))]), devices=32, most=most, disk=0)
    for gone in range(3, 33):
        fleet.move()
        fleet.answer(gone)
        for _ in range(2):
            for device in (1, 2, *range(gone + 1, 33)):
                fleet.pull(device)
            fleet.move()
    gc.collect()
    kept = [copy for copy in gc.get_objects() if type(copy) is Copy and copy.values.size == 10_000]
    assert len(kept) <= most + 1, "in memory: three, and the first"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_parameter_that_went_far_and_came_back_does_not_end_all_differences() -> None:
    """Two updates of one device are enough for it: 1e30, and back."""
    fleet = Fleet(terms=DownlinkSettings(mode="lossy"))
    for size in (1e30, 0.0):
        fleet.move()
        fleet.theta[7] = size
        fleet.pull(1)
    counts = []
    for _ in range(50):
        fleet.move()
        counts.append(fleet.pull(1).count)
    assert max(counts) > 0


def test_long_steps_do_not_drive_out_those_who_hold_on() -> None:
    """A wave of devices that come back forgets itself, not the others."""
    fleet = Fleet(devices=40, most=3)
    for _ in range(3):
        fleet.move()
        for device in range(1, 11):
            fleet.pull(device)
    fleet.move(by=5)
    for device in range(11, 41):
        fleet.move()
        fleet.answer(device)
    assert [device for device in range(1, 11) if fleet.pull(device).base is None] == []
