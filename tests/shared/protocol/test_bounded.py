"""What is unpacked of the other end's takes no more than a few times its bytes, whoever that is."""

import tracemalloc
from collections.abc import Callable

import pytest

from edgeflock.shared.errors import Malformed
from edgeflock.shared.protocol import app, feed, wire
from edgeflock.shared.protocol.gateway import OF_GATEWAYS, OF_LEADERS
from edgeflock.shared.protocol.gateway_coding import items
from tests.hosting import LAYOUT

SIZE = 1 << 21


def array(count: int, element: bytes) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big") + element * count


DECODERS: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "a record": (b"", wire.decode),
    "a record of a device": (b"\x9b\x03", wire.decode),  # an Update
    "an item of a gateway": (b"\xdd\0\0\0\1", lambda octets: list(items(octets, OF_GATEWAYS))),
    "an item of a leader": (b"\xdd\0\0\0\1", lambda octets: list(items(octets, OF_LEADERS))),
    "a frame": (b"\x82\xa4type\xa5delta\xa7devices", feed.decode),
    "what an app is told": (b"\x93\x80\0", lambda octets: app.decode(octets, LAYOUT)),
}


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(
    "blown",
    [
        array(SIZE, b"\x90"),
        array(SIZE, b"\x80"),
        array(1 << 10, array(1 << 10, b"\x90")),
        array(1 << 10, array(1 << 10, b"\x80")),
        b"\x91" * 600,
    ],
    ids=["lists", "maps", "lists of lists", "lists of maps", "deep"],
)
def test_nothing_is_blown_up(decoder: str, blown: bytes) -> None:
    begun, decode = DECODERS[decoder]
    octets = begun + blown
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            decode(octets)
        assert tracemalloc.get_traced_memory()[1] < 8 * SIZE
    finally:
        tracemalloc.stop()
