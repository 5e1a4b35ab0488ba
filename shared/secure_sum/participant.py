"""A device's end of one round, without I/O. Each method takes the server's answer and returns the next body.

    advertise() -> share(roster) -> mask(shares, vector) -> sign(survivors) -> reveal(signatures)

The server and the other devices are not trusted. A method raises SumAbandoned with the reason if an answer is
not what an honest server of honest devices sends: the device then reveals nothing more in this round. Keys,
seed and masks are new in each round and are used once.
"""

import hashlib
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass

from edgeflock.shared.errors import Malformed
from edgeflock.shared.identity import sign, verify
from edgeflock.shared.secure_sum import keys, messages, shamir
from edgeflock.shared.secure_sum.keys import KEY_BYTES, SIGNATURE_BYTES, PublicKeys
from edgeflock.shared.secure_sum.masks import Vector, VectorShape
from edgeflock.shared.secure_sum.messages import DIGEST_BYTES, Roster, SumAbandoned, SumStep
from edgeflock.shared.secure_sum.neighbours import NEIGHBOURS, neighbours, threshold_of


@dataclass(frozen=True, slots=True)
class RoundTerms:
    """What both ends know of a round before it begins."""

    run: str
    base: int
    """The version that the devices computed from."""
    entries: int
    """P of the model."""
    tensors: int
    threshold: float
    """More than this part of a device's neighbours and itself must stay."""
    fewest: int
    """The fewest devices of a sum."""


class RoundParticipant:
    """One device in one round."""

    def __init__(
        self,
        terms: RoundTerms,
        identity: bytes,
        random: Callable[[int], bytes],
        vouched: frozenset[bytes] = frozenset(),
    ) -> None:
        """`identity` is the private Ed25519 key of the device. `random(n)` returns n unpredictable bytes.

        `vouched` has the public identities of the devices to sum with; empty: any.
        """
        self._terms, self._random, self._vouched = terms, random, vouched
        self._channel, self._mask, self._seed = (random(KEY_BYTES) for _ in range(3))
        self._identity = identity
        self._own = keys.sign_keys(identity, terms.run, terms.base, self._channel, self._mask)
        self._next = SumStep.KEYS
        self.digest = b""
        """The identity of the round; empty before it is known."""
        self.roster: Roster
        """From `share` on."""
        self._peers: dict[int, PublicKeys] = {}
        self._channels: dict[int, bytes] = {}
        self._held: dict[int, tuple[bytes, bytes]] = {}
        """Position -> the shares that this device holds: of the seed, and of the mask key."""
        self._survivors: list[int] = []
        self._survivor_bits = b""
        """The survivors, as the server told this device."""

    @property
    def has_sent_values(self) -> bool:
        """Whether the server has its masked vector, in a round that was not for the ranges alone."""
        return self._next > SumStep.MASKED and bool(self.roster.ranges.any())

    @property
    def is_summed(self) -> bool:
        """Whether the sum has this device's vector, as the server told all."""
        return self.roster.position in self._survivors

    @property
    def summed(self) -> int:
        """The number of devices whose vectors the sum has, as the server told all."""
        return len(self._survivors)

    def advertise(self) -> bytes:
        """Return the device's keys for this round."""
        self._advance(SumStep.KEYS)
        return self._terms.base.to_bytes(messages.VERSION_BYTES, "big") + self._own.octets

    def share(self, roster: bytes) -> bytes:
        """Check the devices of the round; return sealed shares for the neighbours."""
        self._advance(SumStep.SHARES)
        with _reasons():
            self.roster = found = Roster.decode(roster, self._terms.entries, self._terms.tensors)
        self.digest = round_digest(self._terms, found)
        if found.size < max(2, self._terms.fewest):
            raise SumAbandoned(
                f"the round has {found.size} devices, and this one sums with {self._terms.fewest} at least"
            )
        self._peers = dict(zip(neighbours(found.position, found.size), found.keys, strict=True))
        self._check_peers()
        size, position, digest = found.size, found.position, self.digest
        holders = sorted((*self._peers, position))
        threshold = threshold_of(size, self._terms.threshold)
        seed, mask = (
            shamir.split(int.from_bytes(secret, "big"), len(holders), threshold, self._below)
            for secret in (self._seed, self._mask)
        )
        pairs = {
            holder: (_share(one), _share(other))
            for holder, one, other in zip(holders, seed, mask, strict=True)
        }
        self._held[position] = pairs[position]
        sealed = []
        for other, peer in self._peers.items():
            try:
                self._channels[other] = keys.channel_key(self._channel, peer.channel, digest)
            except ValueError as error:
                raise SumAbandoned(f"device {other} of the round has a weak key") from error
            sealed.append(keys.seal(self._channels[other], position, digest, b"".join(pairs[other])))
        return b"".join(sealed)

    def mask(self, shares: bytes, vector: Vector, shape: VectorShape) -> bytes:
        """Keep the neighbours' shares; return the masked `vector`, reduced uint32 [entries + counts].

        y_u = x_u + PRG(b_u) + sum_{v > u} PRG(s_uv) - sum_{v < u} PRG(s_uv)
        """
        self._advance(SumStep.MASKED)
        roster = self.roster
        with _reasons():
            sealed = messages.decode_items(shares, tuple(self._peers), messages.SEALED_BYTES, "shares")
        self._check_enough(sealed, "sent shares")
        masked = vector + shape.mask(self._seed)
        for other, octets in sealed.items():
            try:
                opened = keys.unseal(self._channels[other], other, self.digest, octets)
                seed = keys.mask_seed(self._mask, self._peers[other].mask, self.digest)
            except ValueError as error:
                raise SumAbandoned(f"the shares of device {other} of the round: {error}") from error
            self._held[other] = opened[: shamir.SHARE_BYTES], opened[shamir.SHARE_BYTES :]
            mask = shape.mask(seed)
            masked = masked + mask if roster.position < other else masked - mask
        return shape.pack(shape.reduce(masked)) + hashlib.sha256(self._seed).digest()

    def sign(self, survivors: bytes) -> bytes:
        """Check whose vectors the sum has; return the signature of this set."""
        self._advance(SumStep.SIGNATURE)
        with _reasons():
            self._survivors = messages.decode_bits(survivors, range(self.roster.size), "survivors")
        if len(self._survivors) < self._terms.fewest:
            raise SumAbandoned(
                f"the sum would be of {len(self._survivors)} devices, and this one sums with "
                f"{self._terms.fewest} at least"
            )
        near = self._peers.keys() & set(self._survivors)
        if strange := near - self._held.keys():
            raise SumAbandoned(f"the server counts device {min(strange)}, whose shares it did not pass on")
        self._check_enough(near, "sent a vector")
        self._survivor_bits = survivors
        return sign(self._identity, keys.survivors_message(self.digest, self._own.mask, survivors))

    def reveal(self, signatures: bytes) -> bytes:
        """Check that the others were told of the same set; return one share of each device's secrets.

        Of a device in the sum it is a share of its seed, of another one a share of its mask key. No device is
        asked for both: then its vector could be read.
        """
        self._advance(SumStep.SECRETS)
        with _reasons():
            found = messages.decode_items(signatures, tuple(self._peers), SIGNATURE_BYTES, "signatures")
        for other, signature in found.items():
            peer = self._peers[other]
            message = keys.survivors_message(self.digest, peer.mask, self._survivor_bits)
            if not verify(peer.identity, message, signature):
                raise SumAbandoned(
                    f"device {other} of the round did not sign the same set of devices: the server lies "
                    "about who dropped out, or that device does; nothing is revealed"
                )
        self._check_enough(found, "signed whose vectors the sum has")
        counted = set(self._survivors)
        return b"".join(
            seed if holder in counted else mask for holder, (seed, mask) in sorted(self._held.items())
        )

    def _advance(self, step: SumStep) -> None:
        assert step == self._next, "each step once, in order"
        self._next = SumStep(step + 1)

    def _below(self, limit: int) -> int:
        """Return a random integer below `limit`, by 16 bytes more than it has: the bias is below 2^-128."""
        return int.from_bytes(self._random((limit.bit_length() + 7) // 8 + 16), "big") % limit

    def _check_peers(self) -> None:
        roster, terms = self.roster, self._terms
        public = [self._own, *self._peers.values()]
        if len({one.identity for one in public}) + len({one.mask for one in public}) < 2 * len(public):
            raise SumAbandoned("two devices of the round have one key")
        for other, peer in self._peers.items():
            if not peer.is_signed(terms.run, terms.base):
                raise SumAbandoned(f"the keys of device {other} of the round are not signed by it")
            if self._vouched and peer.identity not in self._vouched:
                raise SumAbandoned(
                    f"device {other} of the round has the identity {peer.identity.hex()}, which "
                    "client.vouched does not have"
                )
        if roster.size - 1 <= NEIGHBOURS:
            everyone = [peer for _, peer in sorted({**self._peers, roster.position: self._own}.items())]
            if keys_digest(everyone) != roster.everyone:
                raise SumAbandoned("the round's digest is not that of its devices' keys")

    def _check_enough(self, others: Sized, event: str) -> None:
        """Raise SumAbandoned unless the threshold is reached with these neighbours and this device."""
        needed = threshold_of(self.roster.size, self._terms.threshold)
        if len(others) + 1 < needed:
            raise SumAbandoned(
                f"{len(others) + 1} of {len(self._peers) + 1} devices {event}, and {needed} are needed"
            )


def round_digest(terms: RoundTerms, roster: Roster) -> bytes:
    """Return the identity of a round, by the run, the version, its size, all keys, the ranges, the entries.

    Each device computes it, so two that were told of different rounds share no key.
    """
    head = terms.base.to_bytes(8, "big") + roster.size.to_bytes(8, "big") + roster.everyone
    digest = hashlib.sha256(b"edgeflock sum 1 round\n" + head + terms.run.encode())
    for octets in (roster.ranges.astype("<f4").tobytes(), roster.positions.astype("<i8").tobytes()):
        digest.update(len(octets).to_bytes(8, "big") + octets)
    assert digest.digest_size == DIGEST_BYTES
    return digest.digest()


def keys_digest(everyone: list[PublicKeys]) -> bytes:
    """Return SHA-256 over the keys of all devices of a round, in order of positions."""
    return hashlib.sha256(b"".join(one.octets for one in everyone)).digest()


@contextmanager
def _reasons() -> Iterator[None]:
    """Convert Malformed to SumAbandoned: a device then leaves the round, and not the run."""
    try:
        yield
    except Malformed as error:
        raise SumAbandoned(str(error)) from error


def _share(value: int) -> bytes:
    return value.to_bytes(shamir.SHARE_BYTES, "big")
