"""A gateway's copy of the model: it follows its leader, and remembers the replica of each of its devices."""

import json
from collections.abc import Callable
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.connections import Traffic
from edgeflock.server.descent import Index
from edgeflock.server.engine import Published
from edgeflock.server.publication import Outlet, publication_of
from edgeflock.server.roster import RateLimiters, Relay
from edgeflock.server.sessions import SessionContext
from edgeflock.shared.codecs import packed, sparse, values
from edgeflock.shared.errors import Malformed
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import Weights, generate
from edgeflock.shared.protocol import gateway, gateway_coding, wire
from edgeflock.shared.protocol.messages import Model, Samples, Welcome
from edgeflock.shared.settings.config import Config


class GatewayRelay(Relay):
    """The shared samples that wait for this gateway's devices. The leader deals them out."""

    def __init__(self, config: Config, send: Callable[[gateway_coding.Item], object]) -> None:
        super().__init__(config.injection, config.limits.samples)
        self._send = send

    def leave(self, device: int) -> None:
        self._spill(device, sum(count for count, _ in self.take(device)))
        super().leave(device)

    def share(self, device: int, samples: Samples, octets: bytes) -> None:
        """Check a record of shared samples and send it to the leader."""
        self.check(device, samples)
        self._send(gateway.Shared(device, octets))

    def queue_dealt(self, dealt: gateway.DealtSamples) -> None:
        """Queue samples for one of the devices. Raises Malformed if the record is invalid."""
        samples = wire.decode(dealt.samples, (Samples,))
        assert isinstance(samples, Samples), "nothing else is taken"
        self._spill(dealt.device, self.queue(dealt.device, (samples.count, dealt.samples)))

    def _spill(self, device: int, samples: int) -> None:
        if samples:
            self._send(gateway.Spilled(device, samples))


class Mirror:
    """The model with the interface that a session needs of an engine. One caller at a time."""

    def __init__(self, sync: gateway.Sync) -> None:
        """Replicas are kept where temporary files go, if memory is short.

        Raises Malformed if the leader's Sync is inconsistent.
        """
        terms = wire.decode(sync.welcome, (Welcome,))
        assert isinstance(terms, Welcome), "nothing else is taken"
        self.terms = terms
        self.config = Config.model_validate(json.loads(sync.config))
        self.layout = Layout.from_shapes(terms.layout)  # type: ignore[arg-type]  # leaders are believed
        self.theta = gateway_coding.numbers(sync.theta, "<f4")
        if self.theta.size != self.layout.size:
            raise Malformed(f"theta has {self.theta.size} numbers, the layout {self.layout.size}")
        first = None if terms.start is None else generate(terms.start, self.layout)
        publication = publication_of(self.config, self.layout, terms.version, first)
        self.outlet = Outlet(publication, self.layout, self.theta)
        if terms.weights is not None:
            self.outlet.restore_offer(self._first_model(sync.first, terms.weights), terms.weights)
        self.published = Published(terms.version, sync.learning_rate, sync.stop_reason, sync.diverged)

    def follow(self, change: gateway.Change) -> None:
        """Follow the leader's model to another version. Raises Malformed if the change is invalid."""
        now = self.published.version
        if change.version < now:
            raise Malformed(f"the leader goes from version {now} back to {change.version}")
        if change.touched is None:
            self._overwrite(self.theta, gateway_coding.numbers(change.values, "<f4"))
            touched: list[Index] = [slice(None)] * (change.version - now)
        else:
            indices = gateway_coding.numbers(change.indices, "<i4").astype(np.int64)
            if len(change.touched) != change.version - now or sum(change.touched) != indices.size:
                raise Malformed(f"the change from version {now} to {change.version} is incomplete")
            touched = []
            if change.touched:
                touched.extend(np.split(indices, np.cumsum(change.touched)[:-1]))
                self._put(indices, gateway_coding.numbers(change.values, "<f4"))
        if change.replaced:
            self.outlet.reset()
            del touched[:1]
        for each in touched:
            self.outlet.add(each)
        self.published = Published(change.version, change.learning_rate, change.stop_reason, change.diverged)

    def resume(self, resumed: gateway.Resumed) -> None:
        """Apply the changes since the line broke. Raises Malformed if they do not give the leader's model."""
        for octets in resumed.changes:
            change = gateway_coding.item(octets, (gateway.Change,))
            assert isinstance(change, gateway.Change), "nothing else is taken"
            self.follow(change)
        if sha256(self.theta.data).digest() != resumed.digest:
            raise Malformed("the missed changes do not give the leader's model")

    def context(self, traffic: Traffic, relay: GatewayRelay) -> SessionContext:
        """Return the context of sessions while this leader is followed."""
        config = self.config
        return SessionContext(
            config=config,
            engine=self,
            traffic=traffic,
            relay=relay,
            rate_limiters=RateLimiters(config.limits),
            terms=self.terms,
            adds_model=not config.takes_turns,  # there a device asks, and the leader says when
        )

    def close(self) -> None:
        self.outlet.close()

    def _put(self, indices: NDArray[np.int64], numbers: NDArray[np.float32]) -> None:
        size = self.layout.parameters.size
        if indices.size and not 0 <= indices.min() <= indices.max() < size:
            raise Malformed("a change has an index beyond the parameters")
        self._overwrite(self.theta[size:], numbers[indices.size :])
        self.theta[indices] = numbers[: indices.size]

    def _overwrite(self, part: NDArray[np.float32], numbers: NDArray[np.float32]) -> None:
        if part.size != numbers.size:
            raise Malformed(f"{numbers.size} numbers came for {part.size}")
        part[:] = numbers

    def _first_model(self, file: bytes, weights: Weights) -> Model:
        """Return the first model, as devices that load it hold it."""
        size = values.size_of(weights.mode, self.layout.counts(None))
        octets = packed.unpack(file, weights.mode, size)
        exact = weights.mode == values.CODINGS["f32"].mode
        return Model(0, None, sparse.DENSE, weights.mode, self.layout.size, b"", octets, not exact)
