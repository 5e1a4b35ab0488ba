"""How well a model does on a stream before it trains on it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.client.data.backlog import Backlog
from edgeflock.client.data.fitting import FADING, Prequential
from edgeflock.client.data.records import Skipped
from edgeflock.client.data.stream_batches import StreamBatches
from tests.client.data.test_stream_batches import listed, streaming


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=20), min_size=1, max_size=20))
def test_each_sample_fades_by_itself_however_they_are_batched(batches: list[list[bool]]) -> None:
    """Within a batch all count as its mean; between batches the newer more."""
    faded = Prequential()
    for batch in batches:
        faded.record_result(2.0, float(np.mean(batch)), len(batch))
        faded.settle()
    means = np.concatenate([np.full(len(batch), np.mean(batch)) for batch in batches])
    weights = FADING ** np.arange(len(means))[::-1]
    assert faded.facts()["stream_accuracy"] == pytest.approx(float(means @ weights / weights.sum()))
    assert faded.facts()["stream_loss"] == pytest.approx(2.0)


def test_what_was_long_ago_is_forgotten() -> None:
    faded = Prequential()
    for right in (0.0, 1.0):
        faded.record_result(1.0, right, 5000)
    faded.settle()
    assert float(faded.facts()["stream_accuracy"]) > 0.99


def test_what_comes_again_is_judged_again_and_counts_once() -> None:
    faded = Prequential()
    faded.record_result(1.0, 0.0, 8)
    faded.take_back()
    assert faded.facts() == {}
    faded.record_result(3.0, 1.0, 8)
    assert faded.facts() == {}, "nobody knows yet whether the server has it"
    faded.settle()
    assert faded.facts() == pytest.approx({"stream_loss": 3.0, "stream_accuracy": 1.0})


def test_a_loss_without_right_and_wrong_is_told_alone() -> None:
    faded = Prequential()
    faded.record_result(3.0, None, 8)
    faded.settle()
    assert faded.facts() == {"stream_loss": pytest.approx(3.0)}


def test_a_stream_does_not_judge_a_batch_that_it_trains_on_again() -> None:
    """An update of two steps has the samples of one."""

    async def use(batches: StreamBatches) -> None:
        await batches.ready(2)
        (x, _) = batches.take(0)
        batches.record_result(1.0, 0.25)
        batches.take(0)
        batches.record_result(1.0, 0.25)
        batches.take(0)
        batches.record_result(0.0, 1.0)
        assert "stream_accuracy" not in batches.telemetry()
        batches.settle()
        reported = batches.telemetry()
        assert len(x) == 4
        assert (reported["stream_accuracy"], reported["stream_loss"]) == pytest.approx((0.25, 1.0))

    streaming(lambda: listed(8), use)


async def test_nor_does_a_file() -> None:
    async with Backlog(listed(8), Skipped(), 8) as batches:
        await batches.ready(1)
        for right in (0.5, 1.0):
            batches.take(8)
            batches.record_result(1.0, right)
        batches.settle()
        assert batches.telemetry()["stream_accuracy"] == pytest.approx(0.5)
