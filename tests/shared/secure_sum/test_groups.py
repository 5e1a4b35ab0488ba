"""A round in groups: each has its own sum, and one that fails takes no other with it."""

import random

import numpy as np
import pytest

from edgeflock.shared.identity import new_key
from edgeflock.shared.secure_sum.aggregator import Aggregator, check_keys
from edgeflock.shared.secure_sum.groups import GroupedRound, deal
from edgeflock.shared.secure_sum.keys import PublicKeys
from edgeflock.shared.secure_sum.masks import Vector, VectorShape
from edgeflock.shared.secure_sum.messages import SumAbandoned, SumStep
from edgeflock.shared.secure_sum.participant import RoundParticipant
from tests.shared.secure_sum.rounds import POSITIONS, RANGES, TERMS, Round, draw_vectors

SHAPE = VectorShape(POSITIONS.size, 12, 0)


class Groups:
    """Three groups of four devices."""

    def __init__(self) -> None:
        self.vectors = dict(enumerate(draw_vectors(12, SHAPE)))
        self.devices = {
            device: RoundParticipant(TERMS, new_key(), random.Random(device).randbytes)
            for device in self.vectors
        }
        keys = {device: check_keys(TERMS.run, one.advertise())[1] for device, one in self.devices.items()}
        self.members = deal(keys, 3)
        self.round = GroupedRound([Aggregator(TERMS, one, RANGES, POSITIONS, SHAPE) for one in self.members])

    def step(self, silent: set[int]) -> None:
        step = self.round.step
        for device in sorted(self.round.missing - silent):
            one, answer = self.devices[device], self.round.answer(device)
            if step == SumStep.SHARES:
                body = one.share(answer)
            elif step == SumStep.MASKED:
                body = one.mask(answer, self.vectors[device], SHAPE)
            else:
                body = one.sign(answer) if step == SumStep.SIGNATURE else one.reveal(answer)
            self.round.receive(device, step, body)
        self.round.advance()

    def sum_of(self, group: set[int]) -> Vector:
        return SHAPE.reduce(np.sum([self.vectors[device] for device in group], axis=0, dtype=np.uint32))


def keys_of(devices: range) -> dict[int, PublicKeys]:
    return {
        device: check_keys(
            TERMS.run, RoundParticipant(TERMS, new_key(), random.Random(device).randbytes).advertise()
        )[1]
        for device in devices
    }


def test_devices_are_dealt_out_evenly_and_once_by_the_keys_of_all() -> None:
    keys = keys_of(range(11))
    groups = deal(keys, 3)
    assert sorted(map(len, groups)) == [3, 4, 4]
    assert sorted(device for one in groups for device in one) == list(range(11))
    assert groups == deal(dict(reversed(keys.items())), 3)
    others = {**keys, 10: keys_of(range(20, 21))[20]}  # the key of one device moves others
    assert [set(one) - {10} for one in deal(others, 3)] != [set(one) - {10} for one in groups]


def test_each_group_has_the_sum_of_its_devices() -> None:
    one = Groups()
    for _ in range(4):
        one.step(set())
    assert one.round.summed == set(range(12))
    for group, members in zip(one.round.groups, one.members, strict=True):
        np.testing.assert_array_equal(group.total, one.sum_of(set(members)))


def test_a_group_with_too_few_devices_fails_alone() -> None:
    one = Groups()
    one.step(set())
    gone = set(list(one.members[1])[:2])
    for _ in range(3):
        one.step(gone)
    left = set(one.members[1]) - gone
    assert one.round.summed == set(one.members[0]) | set(one.members[2])
    assert all(one.round.failure(device).startswith("2 of 4 devices were left") for device in left | gone)
    assert one.round.failures == [one.round.failure(min(left))]
    assert not one.round.failure(min(one.members[0]))
    with pytest.raises(SumAbandoned, match="2 of 4 devices were left"):
        one.round.receive(min(left), SumStep.SECRETS, b"")


def test_each_group_is_asked_once_who_was_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round may have 10,000 devices, so asking the group of each device takes seconds."""
    asked = list[Aggregator]()

    def wrong(self: Aggregator) -> set[int]:
        asked.append(self)
        return {min(self.positions)}

    one = Groups()
    one.step(set())
    failed, *_ = one.round.groups
    one.step(set(list(failed.positions)[:2]))
    assert failed not in one.round.groups
    monkeypatch.setattr(Aggregator, "wrong", property(wrong))
    assert one.round.wrong == {min(members) for members in one.members}
    assert len(asked) == 3


def test_half_of_the_groups_are_too_few() -> None:
    one = Groups()
    one.step(set())
    with pytest.raises(SumAbandoned, match="2 of 4 devices were left"):
        one.step({*list(one.members[0])[:2], *list(one.members[1])[:2]})


def test_positions_are_those_of_the_own_group() -> None:
    round = Groups().round
    for group in round.groups:
        for device, position in group.positions.items():
            assert round.at_position(min(group.positions), position) == device
            assert round.digest(device) == group.digest
    assert round.at_position(0, 9) is None
    assert (round.digest(77), round.at_position(77, 0)) == (b"", None)


def test_a_round_of_one_group_is_a_sum_as_usual() -> None:
    vectors = draw_vectors(4, SHAPE)
    alone = GroupedRound([Round(vectors, SHAPE).run()])
    assert alone.summed == {100, 101, 102, 103}
    np.testing.assert_array_equal(
        alone.groups[0].total, SHAPE.reduce(np.sum(vectors, axis=0, dtype=np.uint32))
    )
