"""Steps that fail: now and then, which costs nothing but time, or again and again, which ends the device."""

from collections.abc import Callable, Iterator
from itertools import repeat

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.client.training import attempts
from edgeflock.client.training.attempts import MAX_FAILURES
from edgeflock.shared.errors import ConfigError, TrainingFailed
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.protocol.messages import Facts
from tests.client.training.fakes import FakeBackend, FakeServer, worker

Fails = Exception | None


class Flaky(FakeBackend):
    """Raises what is listed, call by call, and then nothing."""

    def __init__(self, *fails: Fails) -> None:
        super().__init__()
        self._fails: Iterator[Fails] = iter(fails)

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> Gradient:
        if error := next(self._fails, None):
            raise error
        return super().gradient(theta, x, y)


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "back_off", lambda random: repeat(0.0))


async def test_a_step_that_fails_is_computed_again() -> None:
    server, even = FakeServer([None] * 3), FakeServer([None] * 3)
    lost = MemoryError("no room")
    device = worker(server, Flaky(None, lost, *[lost] * (MAX_FAILURES - 2), None, lost))
    progress = await device.run()
    undisturbed = await worker(even, FakeBackend()).run()
    assert (progress.updates, progress.failed) == (undisturbed.updates, MAX_FAILURES)
    assert [update.values for update in server.updates] == [update.values for update in even.updates]
    facts: Facts = device.facts()
    assert facts["failed"] == MAX_FAILURES, "the server is told"


@pytest.mark.parametrize(
    ("error", "begins"),
    [
        (lambda: MemoryError("no room"), "MemoryError: no room"),
        # As torch and onnxruntime say whatever they say: it did train on such data.
        (lambda: ConfigError("package:Model cannot train on inputs [6, 1]"), "package:Model cannot train"),
    ],
)
async def test_one_that_fails_again_and_again_ends_the_device(
    error: Callable[[], Exception], begins: str
) -> None:
    server = FakeServer([None] * 3)
    device = worker(server, Flaky(None, *(error() for _ in range(MAX_FAILURES))))
    with pytest.raises(TrainingFailed, match=rf"^{MAX_FAILURES} steps in a row failed: {begins}"):
        await device.run()
    assert device.progress.failed == MAX_FAILURES
    assert len(server.updates) == 1


async def test_data_that_never_fit_are_told_of_at_once() -> None:
    device = worker(FakeServer([None]), Flaky(ConfigError("package:Model cannot train on inputs [6, 1]")))
    with pytest.raises(ConfigError, match="cannot train on inputs"):
        await device.run()
    assert device.progress.failed == 0
