"""Sums of whole rounds: right for any devices that drop out, or none; and what a lying server gets."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeflock.shared.errors import Malformed
from edgeflock.shared.identity import new_key, public_of, sign
from edgeflock.shared.secure_sum.aggregator import Aggregator, check_keys
from edgeflock.shared.secure_sum.keys import PUBLIC_BYTES, PublicKeys, keys_message, public_key
from edgeflock.shared.secure_sum.masks import VectorShape
from edgeflock.shared.secure_sum.messages import SumAbandoned, SumStep, decode_bits, encode_bits, encode_items
from edgeflock.shared.secure_sum.neighbours import neighbours, threshold_of
from edgeflock.shared.secure_sum.participant import RoundParticipant
from tests.shared.secure_sum.rounds import POSITIONS, RANGES, TERMS, Round, draw_vectors

SHAPE = VectorShape(POSITIONS.size, 11, 4)
STEPS = [SumStep.KEYS, SumStep.SHARES, SumStep.MASKED, SumStep.SIGNATURE, SumStep.SECRETS]


def sum_of(aggregator: Aggregator, round: Round) -> None:
    """Check the sum against the vectors of the devices that it has."""
    wanted = sum((round.vectors[device] for device in aggregator.summed), np.zeros(SHAPE.size, np.uint32))
    np.testing.assert_array_equal(aggregator.total, round.shape.reduce(wanted))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_sums_the_survivors_or_says_that_too_few_are_left(data: Any) -> None:
    count = data.draw(st.integers(3, 9))
    silent = data.draw(st.dictionaries(st.integers(100, 99 + count), st.sampled_from(STEPS)))
    round = Round(draw_vectors(count, SHAPE), SHAPE)
    present = count - sum(step == SumStep.KEYS for step in silent.values())
    left = count - len(silent)
    enough = present >= 3 and left >= max(3, threshold_of(present, TERMS.threshold))
    if not enough:
        with pytest.raises(SumAbandoned):
            round.run(silent)
        return
    aggregator = round.run(silent)
    assert not round.refusals
    assert aggregator.summed == {
        device for device in round.vectors if silent.get(device, SumStep.ABANDONED) > SumStep.MASKED
    }
    sum_of(aggregator, round)


@pytest.mark.parametrize("silent", [{}, {103: SumStep.MASKED, 120: SumStep.SIGNATURE, 131: SumStep.SHARES}])
def test_a_large_round_sums_with_neighbours(silent: dict[int, SumStep]) -> None:
    round = Round(draw_vectors(40, SHAPE), SHAPE)
    sum_of(round.run(silent), round)
    bodies = round.sent[SumStep.SHARES].values()
    assert {len(body) for body in bodies} == {32 * 82}


def test_neighbours_are_mutual() -> None:
    for size in (2, 33, 34, 50, 101):
        for position in range(size):
            near = neighbours(position, size)
            assert len(near) == min(size - 1, 32)
            assert all(position in neighbours(other, size) for other in near)


def test_a_masked_vector_is_uniform() -> None:
    shape = VectorShape(5000, 8, 0)
    zeros = [np.zeros(shape.size, np.uint32)] * 3
    round = Round(zeros, shape, replace(TERMS, entries=5000))
    round.run(positions=np.arange(5000))
    for body in round.sent[SumStep.MASKED].values():
        found = np.bincount(shape.unpack(body[:-32]), minlength=256)
        chi_squared = float(((found - 5000 / 256) ** 2 / (5000 / 256)).sum())
        assert 150 < chi_squared < 390  # of 255 degrees of freedom: beyond with a probability below 1e-6
    first, second, _ = (shape.unpack(body[:-32]) for body in round.sent[SumStep.MASKED].values())
    assert np.count_nonzero(first == second) < 60


def test_no_key_or_mask_is_used_twice() -> None:
    vector = draw_vectors(3, SHAPE)
    one, other = Round(vector, SHAPE, seed=1), Round(vector, SHAPE, seed=2)
    one.run()
    other.run()
    for step in (SumStep.KEYS, SumStep.SHARES, SumStep.MASKED):
        assert not set(one.sent[step].values()) & set(other.sent[step].values())


def test_devices_refuse_a_server_that_tells_them_of_different_survivors() -> None:
    """It would ask half of them for the seed of device 102, and half for its mask key."""
    round = Round(draw_vectors(6, SHAPE), SHAPE)
    lied: dict[int, str] = {}

    def lie(device: int, step: SumStep, answer: bytes) -> bytes:
        if step != SumStep.MASKED or device % 2:
            return answer
        position = round.devices[102].roster.position
        lied[device] = ""
        return encode_bits(set(decode_bits(answer, range(6), "bits")) - {position}, range(6))

    with pytest.raises(SumAbandoned, match="0 of 6 devices were left at step SECRETS"):
        round.run(tamper=lie)
    assert SumStep.SECRETS not in round.sent
    assert len(round.refusals) == 6
    assert all("lies about who dropped out" in reason for reason in round.refusals.values())
    assert lied


def test_devices_that_are_told_of_different_ranges_share_no_key() -> None:
    """Where all ranges but one device's are 0, the sum would be this device's vector."""
    round = Round(draw_vectors(40, SHAPE), SHAPE)  # more than NEIGHBOURS + 1, so that nobody sees all keys

    def lie(device: int, step: SumStep, answer: bytes) -> bytes:
        return answer[:48] + bytes(8) + answer[56:] if step == SumStep.KEYS and device != 107 else answer

    with pytest.raises(SumAbandoned):
        round.run(tamper=lie)
    assert SumStep.SECRETS not in round.sent
    assert "was not encrypted for this device in this round" in round.refusals[107]


@pytest.mark.slow
def test_signatures_of_an_earlier_round_are_refused() -> None:
    """The digest of a large round is the server's word, so it may say the same one again."""
    first = Round(draw_vectors(40, SHAPE), SHAPE, seed=1)
    first.run()
    position = {device: one.roster.position for device, one in first.devices.items()}
    second = Round(draw_vectors(40, SHAPE), SHAPE, seed=2)
    for device, one in first.devices.items():
        second.devices[device] = RoundParticipant(TERMS, one._identity, Random(device).randbytes)
    again: dict[int, bytes] = {}

    def repeat(device: int, step: SumStep, answer: bytes) -> bytes:
        one = second.devices[device]
        if step == SumStep.KEYS:
            return answer[:16] + first.devices[100].roster.everyone + answer[48:]
        if step == SumStep.SIGNATURE:
            of = {first._own.identity: other for other, first in first.devices.items()}
            signed = {
                place: first.sent[SumStep.SIGNATURE][of[peer.identity]] for place, peer in one._peers.items()
            }
            again[device] = encode_items(signed, tuple(one._peers))
            return again[device]
        return answer

    assert len(position) == 40
    with pytest.raises(SumAbandoned):
        second.run(tamper=repeat)
    assert again
    assert SumStep.SECRETS not in second.sent


def test_devices_refuse_without_signatures() -> None:
    round = Round(draw_vectors(6, SHAPE), SHAPE)
    with pytest.raises(SumAbandoned):
        round.run(tamper=lambda device, step, answer: b"\0" if step == SumStep.SIGNATURE else answer)
    assert all("1 of 6 devices signed" in reason for reason in round.refusals.values())
    assert SumStep.SECRETS not in round.sent


def test_devices_refuse_a_sum_of_few() -> None:
    round = Round(draw_vectors(3, SHAPE), SHAPE, replace(TERMS, fewest=2))
    for device in round.devices.values():
        device._terms = replace(TERMS, fewest=4)
    with pytest.raises(SumAbandoned):
        round.run()
    assert all("3 devices, and this one sums with 4 at least" in why for why in round.refusals.values())


def test_devices_refuse_keys_that_their_owner_did_not_sign() -> None:
    round = Round(draw_vectors(3, SHAPE), SHAPE)

    def swap(device: int, step: SumStep, answer: bytes) -> bytes:
        if step != SumStep.KEYS or device != 100:
            return answer
        return answer[:-PUBLIC_BYTES] + bytes(32) + answer[32 - PUBLIC_BYTES :]

    with pytest.raises(SumAbandoned):
        round.run(tamper=swap)
    assert "are not signed by it" in round.refusals[100]


def test_devices_refuse_strangers_where_they_know_whom_to_sum_with() -> None:
    round = Round(draw_vectors(3, SHAPE), SHAPE)
    known = frozenset(device._own.identity for device in list(round.devices.values())[:2])
    for device in round.devices.values():
        device._vouched = known
    with pytest.raises(SumAbandoned):
        round.run()
    assert any("client.vouched does not have" in why for why in round.refusals.values())


def test_shares_of_another_round_are_refused() -> None:
    """A replayed answer of an earlier round does not decrypt."""
    first = Round(draw_vectors(3, SHAPE), SHAPE, seed=1)
    answers: dict[int, bytes] = {}

    def keep(device: int, step: SumStep, answer: bytes) -> bytes:
        if step == SumStep.SHARES:
            answers[device] = answer
        return answer

    first.run(tamper=keep)
    second = Round(draw_vectors(3, SHAPE), SHAPE, seed=2)
    with pytest.raises(SumAbandoned):
        second.run(tamper=lambda device, step, answer: answers[device] if step == SumStep.SHARES else answer)
    assert all("was not encrypted for this device in this round" in why for why in second.refusals.values())


@pytest.mark.parametrize("step", [SumStep.KEYS, SumStep.SHARES, SumStep.MASKED, SumStep.SIGNATURE])
@pytest.mark.parametrize(
    "change", [lambda octets: octets[:-1], lambda octets: octets + b"\0", lambda octets: b""]
)
def test_devices_refuse_answers_of_another_length(step: SumStep, change: Any) -> None:
    round = Round(draw_vectors(3, SHAPE), SHAPE)
    with pytest.raises(SumAbandoned):
        round.run(tamper=lambda device, now, answer: change(answer) if now == step else answer)
    assert len(round.refusals) == 3


@pytest.mark.parametrize("step", [SumStep.SHARES, SumStep.MASKED, SumStep.SIGNATURE, SumStep.SECRETS])
def test_the_server_refuses_bodies_of_another_length(step: SumStep) -> None:
    round = Round(draw_vectors(3, SHAPE), SHAPE)
    keys = {device: check_keys("run", one.advertise())[1] for device, one in round.devices.items()}
    aggregator = Aggregator(TERMS, keys, RANGES, POSITIONS, SHAPE)
    while aggregator.step < step:
        for device in list(aggregator.missing):
            answer = aggregator.answer(device)
            aggregator.receive(device, aggregator.step, round._next(device, aggregator.step, answer))
        aggregator.advance()
    with pytest.raises(Malformed, match=f"step {step.name}"):
        aggregator.receive(100, step, bytes(5))
    with pytest.raises(SumAbandoned):
        aggregator.receive(99, step, b"")
    assert len(aggregator.missing) == 3


def test_a_wrong_share_gives_no_sum() -> None:
    round = Round(draw_vectors(3, SHAPE), SHAPE)
    reveal = round.devices[101].reveal
    round.devices[101].reveal = lambda signatures: bytes(len(reveal(signatures)))  # type: ignore[method-assign]
    with pytest.raises(SumAbandoned, match="do not fit together"):
        round.run()


def test_a_spare_share_shows_who_sent_a_wrong_one() -> None:
    """With 5 of 6 devices needed, the sum is right in spite of one wrong body, and its sender is known."""
    round = Round(draw_vectors(6, SHAPE), SHAPE)
    reveal = round.devices[102].reveal
    round.devices[102].reveal = lambda signatures: bytes(len(reveal(signatures)))  # type: ignore[method-assign]
    aggregator = round.run()
    sum_of(aggregator, round)
    assert aggregator.wrong == {102}


def test_a_repetition_changes_nothing() -> None:
    round = Round(draw_vectors(3, SHAPE), SHAPE)
    keys = {device: check_keys("run", one.advertise())[1] for device, one in round.devices.items()}
    aggregator = Aggregator(TERMS, keys, RANGES, POSITIONS, SHAPE)
    while aggregator.step < SumStep.ABANDONED:
        for device in list(aggregator.missing):
            body = round._next(device, aggregator.step, aggregator.answer(device))
            for _ in range(2):
                aggregator.receive(device, aggregator.step, body)
        aggregator.advance()
    sum_of(aggregator, round)


def test_keys_without_a_signature_are_refused() -> None:
    body = bytearray(RoundParticipant(TERMS, bytes(range(32)), bytes).advertise())
    body[-1] ^= 1
    with pytest.raises(Malformed, match="not signed"):
        check_keys("run", bytes(body))
    with pytest.raises(Malformed, match="168 bytes"):
        check_keys("run", bytes(9))
    assert isinstance(PublicKeys.from_octets(bytes(PUBLIC_BYTES)), PublicKeys)


@pytest.mark.parametrize("weak", [0, 1])
def test_weak_keys_are_refused_before_a_round_begins(weak: int) -> None:
    """With one, every device of the round would have to leave it."""
    identity, good, bad = new_key(), public_key(bytes(range(32))), weak.to_bytes(32, "little")
    for channel, mask in ((good, bad), (bad, good)):
        signature = sign(identity, keys_message("run", 7, channel, mask))
        body = (7).to_bytes(8, "big") + channel + mask + public_of(identity) + signature
        with pytest.raises(Malformed, match="weak"):
            check_keys("run", body)
