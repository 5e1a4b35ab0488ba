"""Who gets what of the samples that devices share, and that each of them counts once."""

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.client.backends import Backend
from edgeflock.client.data.batcher import Batch
from edgeflock.client.data.injection import Injection
from edgeflock.server.roster import Relay
from edgeflock.server.roster.relay import parts
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Facts, Samples, Welcome
from edgeflock.shared.settings.traffic import InjectionSettings
from tests.client.data.test_injection import Picky
from tests.client.training.fakes import WELCOME

ON = InjectionSettings(alpha=0.5, beta=0.5)


def samples(*labels: int) -> Samples:
    count = len(labels)
    return Samples(count, True, bytes(labels), True, struct.pack(f"<{count}i", *labels))


def relaying(devices: int) -> Relay:
    relay = Relay(ON, 1 << 20)
    for device in range(devices):
        relay.join(device)
    return relay


def got(relay: Relay, device: int) -> list[int]:
    labels = []
    for count, octets in relay.take(device):
        record = wire.decode(octets)
        assert isinstance(record, Samples)
        assert record.count == count
        assert list(record.x) == list(struct.unpack(f"<{count}i", record.y))
        labels += list(record.x)
    return labels


@given(labels=st.lists(st.integers(0, 255), min_size=1, max_size=40), most=st.integers(1, 12))
def test_parts_are_all_of_it_in_nearly_equal_sizes(labels: list[int], most: int) -> None:
    dealt = parts(samples(*labels), most)
    assert [label for part in dealt for label in part.x] == labels
    sizes = [part.count for part in dealt]
    assert len(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) > 0


def test_each_sample_goes_to_one_other_and_all_get_as_many() -> None:
    relay = relaying(4)
    for turn in range(6):
        relay.share(0, samples(2 * turn, 2 * turn + 1), b"as it came")
    dealt = [got(relay, device) for device in range(4)]
    assert dealt[0] == []
    assert [len(part) for part in dealt[1:]] == [4, 4, 4]
    assert sorted(sum(dealt, [])) == list(range(12))
    assert (relay.samples, relay.dropped) == (12, 0)


def test_of_two_the_other_gets_the_bytes_that_came_and_one_alone_gets_its_own_back() -> None:
    relay = relaying(2)
    relay.share(0, samples(1, 2), b"as it came")
    assert relay.take(1) == [(2, b"as it came")]
    relay.leave(1)
    relay.share(0, samples(1, 2), b"as it came")
    assert relay.take(0) == [(2, b"as it came")]


class Numbered:
    """A device's own samples, each with a number of its own; what is taken back comes again."""

    def __init__(self, first: int) -> None:
        self._waiting = list(range(first, first + 400))
        self._taken: list[int] = []

    def begin(self, welcome: Welcome, backend: Backend) -> None:
        pass

    async def ready(self, steps: int) -> None:
        pass

    def take(self, size: int) -> Batch:
        chosen, self._waiting = self._waiting[:size], self._waiting[size:]
        self._taken += chosen
        numbers = np.array(chosen)
        return numbers[:, np.newaxis].astype(np.float32), numbers % 3

    def record_result(self, loss: float, right: float | None) -> None: ...

    def settle(self) -> None:
        self._taken.clear()

    def take_back(self) -> None:
        self._waiting, self._taken = self._taken + self._waiting, []

    def telemetry(self) -> Facts:
        return {}

    def left(self) -> Iterator[int]:
        yield from self._waiting


@pytest.mark.parametrize("devices", [1, 2, 5])
@given(data=st.data())
async def test_a_shared_sample_counts_once_in_the_fleet(devices: int, data: st.DataObject) -> None:
    """Whoever shares what, and whatever is refused: each sample that the fleet is done with was trained on by
    one device, and no sample by two.
    """
    relay, trained = relaying(devices), Counter[int]()
    own = [Numbered(1000 * device) for device in range(devices)]
    fleet = []
    for device in range(devices):

        async def send(record: Samples, device: int = device) -> None:
            relay.share(device, record, wire.encode(record))

        injected = Injection(own[device], send, np.random.default_rng(device), 1000)
        injected.begin(replace(WELCOME, alpha=0.5, beta=0.5, frame_bytes=1 << 20), Picky())
        fleet.append(injected)

    async def update(device: int, size: int, *, accepted: bool) -> None:
        injected = fleet[device]
        await injected.ready(2)
        batches = [injected.take(size) for _ in range(2)]
        for _, octets in relay.take(device):
            record = wire.decode(octets)
            assert isinstance(record, Samples)
            injected.receive(record)
        if not accepted:
            injected.take_back()
            return
        injected.settle()
        trained.update(int(number) for x, _ in batches for number in x[:, 0])

    for _ in range(data.draw(st.integers(0, 12))):
        device = data.draw(st.integers(0, devices - 1))
        await update(device, data.draw(st.integers(3, 9)), accepted=data.draw(st.booleans()))
    # Until nothing is under way: nobody draws any more.
    for injected in fleet:
        injected._alpha = 0.0
    for _ in range(3):
        for device in range(devices):
            await update(device, 3, accepted=True)
    taken = Counter(
        number
        for device, source in enumerate(own)
        for number in set(range(1000 * device, 1000 * device + 400)) - set(source.left())
    )
    assert trained == taken
    assert relay.dropped == 0
