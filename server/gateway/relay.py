"""Relay of shared samples at a gateway: its leader distributes them over all devices."""

from collections.abc import Callable

from edgeflock.server.roster import Relay, SampleRecord
from edgeflock.shared.protocol import gateway, gateway_coding, wire
from edgeflock.shared.protocol.messages import Samples


class GatewayRelay:
    """The shared samples that wait for this gateway's devices, as at a server."""

    def __init__(self, relay: Relay, send: Callable[[gateway_coding.Item], object]) -> None:
        self._relay, self._send = relay, send

    def join(self, device: int) -> None:
        """Add a device that shares samples."""
        self._relay.join(device)

    def leave(self, device: int) -> None:
        """Remove a device. It may never have shared samples."""
        self._spill(device, sum(count for count, _ in self._relay.take(device)))
        self._relay.leave(device)

    def share(self, device: int, samples: Samples, octets: bytes) -> None:
        """Check a record of shared samples and send it to the leader."""
        self._relay.check(device, samples)
        self._send(gateway.Shared(device, octets))

    def take(self, device: int) -> list[SampleRecord]:
        """Take the samples that wait for a device."""
        return self._relay.take(device)

    def queue(self, dealt: gateway.DealtSamples) -> None:
        """Queue samples for one of the devices. Raises Malformed if the record is invalid."""
        samples = wire.decode(dealt.samples, (Samples,))
        assert isinstance(samples, Samples), "nothing else is taken"
        self._spill(dealt.device, self._relay.queue(dealt.device, (samples.count, dealt.samples)))

    def _spill(self, device: int, samples: int) -> None:
        if samples:
            self._send(gateway.Spilled(device, samples))
