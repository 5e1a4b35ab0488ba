"""Items of a gateway's line: what was packed comes out, and what is none of them is refused."""

import tracemalloc
from typing import Any

import msgpack
import pytest

from edgeflock.shared.errors import Malformed
from edgeflock.shared.protocol import gateway_coding as coding
from edgeflock.shared.protocol.gateway import (
    GATEWAY,
    OF_GATEWAYS,
    OF_LEADERS,
    AccessRequest,
    AliveReply,
    Change,
    Denied,
    DeviceUpdate,
    SessionEnded,
    Sync,
    UpdateTaken,
)
from edgeflock.shared.protocol.gateway_coding import Item, batch, items, message, pack

SYNC = Sync(GATEWAY, b"", "", b"", b"", b"", b"", "", 0.1, None, None)
CHANGE = Change(3, [1, 0], b"\1\0\0\0", b"\0\0\0\0", False, 0.1, None, "it diverged")


def test_items_come_out_as_they_went_in() -> None:
    sent: list[Item] = [
        AccessRequest(1, "secret", "/v1/session", b""),
        DeviceUpdate(7, 10, 20, b"x"),
    ]
    assert list(items(message(map(pack, sent)), OF_GATEWAYS)) == sent
    sent = [
        CHANGE,
        CHANGE._replace(touched=None),
        UpdateTaken(7, 1, 3, 2, b"", b""),
        Denied(0, 7, "non-finite", "", 0),
    ]
    assert list(items(message(map(pack, sent)), OF_LEADERS)) == sent
    assert list(items(message([]), OF_LEADERS)) == []


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"\xc1",
        b"\x01",
        message([b"\x90"]),
        message([b"\x01"]),
        message([b"\x91\xa1a"]),
        message([b"\x91\xcc\xff"]),
        message([pack(UpdateTaken(7, 1, 3, 2, b"", b""))]),  # which a leader says
        message([pack(SessionEnded(1, "", 0, 0))[:-1]]),
        message([msgpack.packb((6, 1, "", 0))]),
        message([msgpack.packb((6, -1, "", 0, 0))]),
        message([msgpack.packb((6, True, "", 0, 0))]),
        message([msgpack.packb((6, 1, b"", 0, 0))]),
        message([pack(SessionEnded(1, "", 0, 0))]) + b"\0",
        message([pack(SessionEnded(1, "", 0, 0))] * 2) + b"\0",
        message([pack(SessionEnded(1, "", 0, 0))] * 2)[:-1],
        message([msgpack.packb((6, 1 << 63, "", 0, 0))]),
        message([msgpack.packb((6, 1, "a" * (1 << 13) + "a", 0, 0))]),
        message([msgpack.packb((6, 1, {}, 0, 0))]),
        message([msgpack.packb((6, 1, {"a": 1}, 0, 0))]),
        message([msgpack.packb((6, 1, msgpack.ExtType(1, b"a"), 0, 0))]),
        message([msgpack.packb((6, 1, [[], []], 0, 0))]),
        msgpack.packb([[6, 1, "", 0, 0]]),  # in another form
    ],
)
def test_what_is_no_item_of_a_gateway_is_refused(octets: bytes) -> None:
    with pytest.raises(Malformed):
        list(items(octets, OF_GATEWAYS))


def test_a_message_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coding, "LONGEST", 10)
    outbox = [b"x" * 4, b"y" * 4, b"z" * 20, b"z"]
    assert batch(outbox) == ([b"x" * 4, b"y" * 4], 8)
    assert batch(outbox) == ([b"z" * 20], 20)
    assert batch(outbox) == ([b"z"], 1)
    assert outbox == []
    monkeypatch.setattr(coding, "MAX_ITEMS", 2)
    outbox = [b"x"] * 5
    assert [len(batch(outbox)[0]) for _ in range(3)] == [2, 2, 1]


def test_what_shares_a_message_is_bounded_before_it_is_unpacked() -> None:
    """An AliveReply takes three bytes on the wire and two hundred in memory."""
    lives, most = pack(AliveReply(0, True)), coding.MAX_ITEMS
    assert len(list(items(message([lives] * most), OF_GATEWAYS))) == most
    with pytest.raises(Malformed, match=f"at most {most} items"):
        next(items(message([lives] * (most + 1)), OF_GATEWAYS))
    long = pack(DeviceUpdate(1, 0, 0, bytes(coding.LONGEST)))
    assert len(list(items(message([long]), OF_GATEWAYS))) == 1
    with pytest.raises(Malformed, match=f"at most {coding.LONGEST} bytes"):
        next(items(message([lives, long]), OF_GATEWAYS))


@pytest.mark.parametrize("blown", [b"\x90", b"\x80", b"\xa0", b"\x91" * 400 + b"\x90", b"\xc0"])
def test_no_message_is_blown_up(blown: bytes) -> None:
    """What 8 MiB come to that are lists, maps, texts or nothing at all is no more than twice theirs."""
    count = (1 << 23) // len(blown)
    octets = b"\xdd\0\0\0\1\xdd" + count.to_bytes(4, "big") + blown * count
    tracemalloc.start()
    try:
        for taken in (OF_GATEWAYS, OF_LEADERS):
            with pytest.raises(Malformed):
                list(items(octets, taken))
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


def test_lists_have_entries_of_one_kind() -> None:
    assert list(items(message([pack(CHANGE)]), OF_LEADERS)) == [CHANGE]
    of_others: list[Any] = [[-1], [1 << 63], ["1"], [b""], [True], [[1]]]
    for touched in of_others:
        with pytest.raises(Malformed):
            list(items(message([pack(CHANGE._replace(touched=touched))]), OF_LEADERS))


def test_what_a_leader_says_first_has_the_tag_of_all_versions() -> None:
    assert msgpack.unpackb(pack(SYNC))[0] == 12


def test_a_leader_of_another_version_is_named_whatever_it_says_else() -> None:
    assert list(items(message([pack(SYNC)]), OF_LEADERS)) == [SYNC]
    for fields in ((12, GATEWAY + 1), (12, GATEWAY - 1, *SYNC[1:])):
        with pytest.raises(Malformed, match=f"of version {fields[1]}, this gateway's {GATEWAY}"):
            list(items(message([msgpack.packb(fields)]), OF_LEADERS))
