"""Items of a gateway's line: what was packed comes out, and what is none of them is refused."""

import msgpack
import pytest

from edgeflock.shared.errors import Malformed
from edgeflock.shared.protocol.gateway import (
    OF_GATEWAYS,
    OF_LEADERS,
    Change,
    Denied,
    Given,
    Gone,
    Item,
    Knock,
    Taken,
    batch,
    coding,
    items,
    message,
    packed,
)

CHANGE = Change(3, [1, 0], b"\1\0\0\0", b"\0\0\0\0", False, 0.1, None, "it diverged")


def test_items_come_out_as_they_went_in() -> None:
    sent: list[Item] = [Knock(1, "secret", "/v1/session", "192.0.2.1", b""), Given(7, 10, 20, b"x")]
    assert items(message(map(packed, sent)), OF_GATEWAYS) == sent
    sent = [CHANGE, CHANGE._replace(touched=None), Taken(7, 1, 3, 2), Denied(0, 7, "non-finite", "", 0, 422)]
    assert items(message(map(packed, sent)), OF_LEADERS) == sent
    assert items(message([]), OF_LEADERS) == []


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
        message([packed(Taken(7, 1, 3, 2))]),  # which a leader says
        message([packed(Gone(1, "", 0, 0))[:-1]]),
        message([msgpack.packb((7, 1, "", 0))]),
        message([msgpack.packb((7, -1, "", 0, 0))]),
        message([msgpack.packb((7, True, "", 0, 0))]),
        message([msgpack.packb((7, 1, b"", 0, 0))]),
        message([packed(Gone(1, "", 0, 0))]) + b"\0",
    ],
)
def test_what_is_no_item_of_a_gateway_is_refused(octets: bytes) -> None:
    with pytest.raises(Malformed):
        items(octets, OF_GATEWAYS)


def test_a_message_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coding, "LONGEST", 10)
    outbox = [b"x" * 4, b"y" * 4, b"z" * 20, b"z"]
    assert batch(outbox) == ([b"x" * 4, b"y" * 4], 8)
    assert batch(outbox) == ([b"z" * 20], 20)
    assert batch(outbox) == ([b"z"], 1)
    assert outbox == []
