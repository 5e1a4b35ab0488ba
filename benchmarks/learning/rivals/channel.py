"""What travels between the server and its clients, coded and counted."""

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Model, Update

Vector = NDArray[np.float32]


class Channel:
    """Counts models and changes as framed WebSocket messages of the protocol.

    Their values are really encoded and decoded. Nothing else is counted: no greetings, questions or receipts.

    In float32 the whole model goes down. A coding of fewer bits is of differences from what the client
    holds, which is nothing at first. The server knows what each of them made of it: no error adds up.
    """

    def __init__(self, layout: Layout, coding: str) -> None:
        self.ingress = self.egress = self.messages = 0
        self._counts = layout.counts(None)
        self._size = layout.size
        self._coding = coding
        self._mode = values.CODINGS[coding].mode
        self._held: dict[int, tuple[int, Vector]] = {}

    def down(self, client: int, version: int, theta: Vector) -> Vector:
        """The model as `client` has it then."""
        base, held = self._held.get(client, (None, np.zeros_like(theta)))
        whole = self._coding in ("f32", "f16")
        octets, decoded = self._across(theta if whole else theta - held)
        self.sent(version, None if whole else base, octets)
        if whole:
            return decoded
        self._held[client] = version, held + decoded
        return held + decoded

    def up(self, version: int, change: Vector, loss: float, samples: int) -> Vector:
        """A client's change of the model, from `version`, as the server has it then."""
        octets, decoded = self._across(change)
        self.received(version, octets, loss, samples)
        return decoded

    def sent(self, version: int, base: int | None, octets: bytes) -> None:
        """Count these values on their way down."""
        record = Model(version, base, sparse.DENSE, self._mode, self._size, b"", octets)
        self.egress += wire.framed_size(wire.size(record), masked=False)

    def received(self, version: int, octets: bytes, loss: float, samples: int) -> None:
        """Count these values on their way up."""
        self.messages += 1
        mode, size = self._mode, self._size
        record = Update(self.messages, version, sparse.DENSE, mode, size, b"", octets, loss, samples, False)
        self.ingress += wire.framed_size(wire.size(record), masked=True)

    def _across(self, vector: Vector) -> tuple[bytes, Vector]:
        octets = values.encode(vector, self._counts, self._coding)
        return octets, values.decode(octets, self._counts, self._mode)
