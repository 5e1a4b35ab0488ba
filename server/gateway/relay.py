"""Samples that devices share, at a gateway: its leader deals them out over all devices, wherever they are."""

from collections.abc import Callable

from edgeflock.server.roster import Parcel, Relay
from edgeflock.shared.protocol import gateway, wire
from edgeflock.shared.protocol.messages import Samples


class GatewayRelay:
    """What waits for this gateway's devices, as it would at a server."""

    def __init__(self, relay: Relay, send: Callable[[gateway.Item], None]) -> None:
        self._relay, self._send = relay, send

    def join(self, device: int) -> None:
        """A device that shares is let in."""
        self._relay.join(device)

    def leave(self, device: int) -> None:
        """It is gone, or never shared."""
        self._spill(device, sum(count for count, _ in self._relay.take(device)))
        self._relay.leave(device)

    def share(self, device: int, samples: Samples, octets: bytes) -> None:
        """As a server's."""
        self._relay.check(device, samples)
        self._send(gateway.Shared(device, octets))

    def take(self, device: int) -> list[Parcel]:
        """As a server's."""
        return self._relay.take(device)

    def dealt(self, dealt: gateway.Dealt) -> None:
        """Something for one of the devices. Raises Malformed if it is none."""
        samples = wire.decode(dealt.samples, (Samples,))
        assert isinstance(samples, Samples), "nothing else is taken"
        self._spill(dealt.device, self._relay.hand(dealt.device, (samples.count, dealt.samples)))

    def _spill(self, device: int, samples: int) -> None:
        if samples:
            self._send(gateway.Spilled(device, samples))
