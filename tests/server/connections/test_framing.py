"""Frames followed by their heads: however they are cut, it knows what is whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.server.connections.framing import PROTOCOL_ERROR, TOO_BIG, Breach, Framing, binary, close
from tests.integration.foreign_client import BINARY, PING, frame

payloads = st.one_of(st.binary(max_size=20), st.sampled_from([bytes(125), bytes(126), bytes(300)]))


def fragments(payload: bytes, parts: int) -> list[bytes]:
    """A message in `parts` frames."""
    size = len(payload) // parts + 1
    pieces = [payload[i * size : (i + 1) * size] for i in range(parts)]
    frames = [bytearray(frame(piece, BINARY if i == 0 else 0)) for i, piece in enumerate(pieces)]
    for one in frames[:-1]:
        one[0] &= 0x7F
    return [bytes(one) for one in frames]


@given(st.lists(st.tuples(payloads, st.integers(1, 3), st.booleans()), max_size=4), st.data())
def test_it_knows_what_is_whole_however_it_is_cut(
    messages: list[tuple[bytes, int, bool]], data: st.DataObject
) -> None:
    stream, ends = b"", []
    for payload, parts, pings in messages:
        for one in fragments(payload, parts):
            stream += one + (frame(b"?", PING) if pings else b"")
        ends.append(len(stream) - (len(frame(b"?", PING)) if pings else 0))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    framing = Framing(1 << 16)
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        framing.feed(stream[start:stop])
        assert framing.messages == sum(end <= stop for end in ends)
    assert not framing.unfinished
    for payload, _, _ in messages:
        before = framing.held_bytes
        framing.take()
        assert before - framing.held_bytes >= len(payload)
    assert framing.held_bytes == 0


def test_what_is_begun_is_held() -> None:
    framing = Framing(1000)
    whole = frame(bytes(900))
    framing.feed(whole[:1])
    assert (framing.unfinished, framing.held_bytes) == (True, 0)
    framing.feed(whole[1:500])
    assert 400 < framing.held_bytes < 700
    framing.feed(whole[500:])
    assert (framing.unfinished, framing.held_bytes > 900) == (False, True), "until it is taken"


@pytest.mark.parametrize("parts", [1, 2])
def test_a_message_is_refused_by_its_announced_length(parts: int) -> None:
    framing = Framing(100)
    *before, last = fragments(bytes(101), parts)
    for one in before:
        framing.feed(one)
    with pytest.raises(Breach) as breach:
        framing.feed(last[:6])
    assert breach.value.code == TOO_BIG


def test_a_message_may_be_as_long_as_it_may() -> None:
    framing = Framing(100)
    framing.feed(frame(bytes(100)))
    assert framing.messages == 1


@pytest.mark.parametrize("opcode", [BINARY, PING])
def test_frames_are_masked(opcode: int) -> None:
    with pytest.raises(Breach) as breach:
        Framing(100).feed(bytes([0x80 | opcode, 0x02]))
    assert breach.value.code == PROTOCOL_ERROR


def test_what_a_server_says() -> None:
    assert binary(b"abc") == b"\x82\x03abc"
    assert binary(bytes(300))[:4] == b"\x82\x7e\x01\x2c"
    assert close(1002, "no") == b"\x88\x04\x03\xeano"
