"""The server's end of one round, without I/O and clock.

    aggregator = Aggregator(terms, ranges, positions, shape_of, {device: body of KEYS, ...})
    aggregator.answer(device)              what the device gets next
    aggregator.receive(device, body)       what it sends then
    aggregator.missing                     who has not sent it yet
    aggregator.advance()                   go on without them

Whoever calls decides when to go on. A device that is missing then is out, and the sum does without it. If too
many are, `advance` raises SumAbandoned, and what arrived says nothing about any device.
"""

import hashlib
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import Malformed
from edgeflock.shared.secure_sum import keys, messages, shamir
from edgeflock.shared.secure_sum.keys import KEY_BYTES, PUBLIC_BYTES, SIGNATURE_BYTES, PublicKeys
from edgeflock.shared.secure_sum.masks import Vector, VectorShape
from edgeflock.shared.secure_sum.messages import DIGEST_BYTES, VERSION_BYTES, Roster, SumAbandoned, SumStep
from edgeflock.shared.secure_sum.neighbours import neighbours, threshold_of
from edgeflock.shared.secure_sum.participant import RoundTerms, keys_digest, round_digest


def check_keys(run: str, body: bytes) -> tuple[int, PublicKeys]:
    """Return (the version, the keys) of the body of KEYS. Raises Malformed if they are weak or not signed."""
    messages.check_length(body, VERSION_BYTES + PUBLIC_BYTES, "the keys of a secure sum")
    base = int.from_bytes(body[:VERSION_BYTES], "big")
    public = PublicKeys.from_octets(body[VERSION_BYTES:])
    if not public.is_signed(run, base):
        raise Malformed("the keys of a secure sum are not signed by their identity")
    for octets in (public.channel, public.mask):
        try:
            keys.channel_key(bytes(KEY_BYTES), octets, b"")
        except ValueError as error:
            raise Malformed("a key of a secure sum is weak: all secrets shared with it are 0") from error
    return base, public


class Aggregator:
    """One round."""

    def __init__(
        self,
        terms: RoundTerms,
        devices: Mapping[int, PublicKeys],
        ranges: NDArray[np.float32],
        positions: NDArray[np.int64],
        shape: VectorShape,
    ) -> None:
        """`devices` has the keys that each has signed, checked. Raises SumAbandoned if they are too few."""
        self.terms, self._shape = terms, shape
        if len(devices) < max(2, terms.fewest):
            raise SumAbandoned(f"too few devices are here, {len(devices)}: a sum has {terms.fewest} at least")
        order = sorted(devices, key=lambda device: hashlib.sha256(devices[device].channel).digest())
        self._keys = [devices[device] for device in order]
        self.positions = {device: position for position, device in enumerate(order)}
        """Device -> its position in the round."""
        self.ranges, self.entries = ranges, positions
        self._roster = Roster(len(order), 0, keys_digest(self._keys), ranges, positions, ())
        self.digest = round_digest(terms, self._roster)
        self.step = SumStep.SHARES
        """What the devices are to send now."""
        self._neighbours = [neighbours(position, len(order)) for position in range(len(order))]
        self._expected = set(range(len(order)))
        """Positions of the devices that are still in the round."""
        self._received: dict[int, bytes] = {}
        self._shared: Mapping[int, bytes] = {}
        """U2: position -> its sealed shares."""
        self._digests: dict[int, bytes] = {}
        """U3: position -> the digest of its seed."""
        self._survivors = b""
        self._signatures: Mapping[int, bytes] = {}
        self._sum = np.zeros(shape.size, np.uint32)
        self._wrong: set[int] = set()

    @property
    def wrong(self) -> Set[int]:
        """The devices that revealed a wrong share."""
        return {device for device, position in self.positions.items() if position in self._wrong}

    @property
    def missing(self) -> Set[int]:
        """The devices that are in the round and have not sent what they are to send."""
        waiting = self._expected - self._received.keys()
        return {device for device, position in self.positions.items() if position in waiting}

    @property
    def summed(self) -> Set[int]:
        """The devices whose vectors the sum has."""
        return {device for device, position in self.positions.items() if position in self._digests}

    def receive(self, device: int, step: int, body: bytes) -> None:
        """Take what a device sends; a repetition changes nothing.

        Raises Malformed, and SumAbandoned if it is late.
        """
        position = self.positions.get(device)
        if position is None or position not in self._expected or step not in (self.step, self.step - 1):
            raise SumAbandoned("the round has gone on without this device")
        if step < self.step:  # it has lost its answer with its connection
            return
        if position not in self._received:
            messages.check_length(body, self._length(position), f"step {self.step.name} of a secure sum")
            if step == SumStep.MASKED:
                self._sum += self._shape.unpack(body[:-DIGEST_BYTES])  # so that no vector waits in memory
                body = body[-DIGEST_BYTES:]
            self._received[position] = body

    def leave(self, device: int) -> None:
        """Wait no more for a device, which may be in the round."""
        if (position := self.positions.get(device)) is not None and position not in self._received:
            self._expected.discard(position)

    def answer(self, device: int) -> bytes:
        """Return the answer to the last step that a device has sent, before it sends `step`."""
        position = self.positions[device]
        near = self._neighbours[position]
        if self.step == SumStep.SHARES:
            public = [self._keys[one] for one in near]
            return replace(self._roster, position=position, keys=public).encode(self.terms.entries)
        if self.step == SumStep.MASKED:
            sealed = {one: self._sealed(one, position) for one in near if one in self._shared}
            return messages.encode_items(sealed, near)
        if self.step == SumStep.SIGNATURE:
            return self._survivors
        signed = {one: self._signatures[one] for one in near if one in self._signatures}
        return messages.encode_items(signed, near)

    def advance(self) -> None:
        """Go on to the next step with those that have sent this one. Raises SumAbandoned if too few have."""
        step, received = self.step, self._received
        if len(received) < max(2, self.terms.fewest):
            raise SumAbandoned(
                f"{len(received)} of {len(self._keys)} devices were left at step {step.name}, and a sum has "
                f"{max(2, self.terms.fewest)} at least"
            )
        self._check_enough(received)
        if step == SumStep.SHARES:
            self._shared = received
        elif step == SumStep.MASKED:
            self._digests = received
            self._survivors = messages.encode_bits(received, range(len(self._keys)))
        elif step == SumStep.SIGNATURE:
            self._signatures = received
        self.step, self._expected, self._received = SumStep(step + 1), set(received), {}
        if step == SumStep.SECRETS:
            self._unmask(received)

    @property
    def total(self) -> Vector:
        """The sum of the vectors of `summed`, after the last step: uint32 [entries + counts]."""
        assert self.step == SumStep.ABANDONED, "it is not known before the last step"
        return self._sum

    def _length(self, position: int) -> int:
        near = self._neighbours[position]
        if self.step == SumStep.SHARES:
            return messages.SEALED_BYTES * len(near)
        if self.step == SumStep.MASKED:
            return self._shape.octets + DIGEST_BYTES
        if self.step == SumStep.SIGNATURE:
            return SIGNATURE_BYTES
        return shamir.SHARE_BYTES * len(self._owners(position))

    def _sealed(self, sender: int, receiver: int) -> bytes:
        place = self._neighbours[sender].index(receiver) * messages.SEALED_BYTES
        return self._shared[sender][place : place + messages.SEALED_BYTES]

    def _owners(self, holder: int) -> list[int]:
        """The devices of whose secrets a device holds a share, in order."""
        return sorted({holder, *(one for one in self._neighbours[holder] if one in self._shared)})

    def _holders(self, owner: int) -> list[int]:
        """The devices that hold a share of a device's secrets, in order of the shares."""
        return sorted((owner, *self._neighbours[owner]))

    def _check_enough(self, present: Iterable[int]) -> None:
        """Raise SumAbandoned if too few neighbours are left for any device's secrets."""
        here, needed = set(present), threshold_of(len(self._keys), self.terms.threshold)
        for owner in self._shared or here:
            holders = self._holders(owner)
            if (left := len(here.intersection(holders))) < needed:
                raise SumAbandoned(
                    f"{left} of {len(holders)} devices were left at step {self.step.name}, and {needed} are "
                    "needed"
                )

    def _unmask(self, revealed: Mapping[int, bytes]) -> None:
        """Subtract the masks: those of the devices in the sum, and those with devices that are out."""
        shares: dict[int, dict[int, int]] = {owner: {} for owner in self._shared}
        for holder, body in revealed.items():
            for owner, share in zip(
                self._owners(holder), messages.cut(body, shamir.SHARE_BYTES), strict=True
            ):
                shares[owner][holder] = int.from_bytes(share, "big")
        for owner, found in shares.items():
            octets = self._secret(owner, found)
            if owner in self._digests:
                self._sum -= self._shape.mask(octets)
                continue
            for other in self._neighbours[owner]:
                if other in self._digests:
                    mask = self._shape.mask(keys.mask_seed(octets, self._keys[other].mask, self.digest))
                    self._sum += mask if owner < other else np.uint32(0) - mask
        self._shape.reduce(self._sum)

    def _secret(self, owner: int, found: Mapping[int, int]) -> bytes:
        """Return the secret of a device from shares: holder -> share. One may be wrong, if one is spare.

        Who sent it is one of `wrong` from then on. Raises SumAbandoned.
        """
        places = {holder: place for place, holder in enumerate(self._holders(owner), 1)}
        needed = threshold_of(len(self._keys), self.terms.threshold)
        right = [holder for holder in found if holder not in self._wrong]
        for left_out in (None, *right[:needed]):
            used = [holder for holder in right if holder != left_out][:needed]
            if len(used) < needed:
                break
            octets = shamir.combine({places[holder]: found[holder] for holder in used}).to_bytes(
                shamir.SHARE_BYTES, "big"
            )[1:]
            if self._is_secret(owner, octets):
                self._wrong |= set() if left_out is None else {left_out}
                return octets
        named = f"; device {min(self._wrong)} of the round sent wrong shares" if self._wrong else ""
        raise SumAbandoned(
            f"the shares of the secret of device {owner} of the round do not fit together{named}"
        )

    def _is_secret(self, owner: int, octets: bytes) -> bool:
        if owner in self._digests:
            return hashlib.sha256(octets).digest() == self._digests[owner]
        return keys.public_key(octets) == self._keys[owner].mask
