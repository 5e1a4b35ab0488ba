"""What of a gradient is sent, and what comes back of the rest: in a worker's updates, and by itself."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.client.training.selector import SelectionMemory, select, take_back
from edgeflock.client.training.terms import layout_of
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.errors import BaseExpired, RunReplaced, ServerAtFault
from edgeflock.shared.protocol.messages import Model, Update, Welcome
from tests.client.training.fakes import (
    HALVED,
    LAYOUT,
    WELCOME,
    FakeBackend,
    FakeServer,
    falling,
    gradient_at,
    listed,
    sent,
    theta_at,
    worker,
)

ORIGIN = np.zeros(LAYOUT.size, np.float32)

# Feedback
DAMPED = replace(WELCOME, feedback=HALVED)


async def test_what_was_not_sent_comes_back_damped() -> None:
    server = FakeServer([None, None], DAMPED)
    await worker(server, listed(falling(1), falling(1), falling(0))).run()
    first, second, third = (sent(update) for update in server.updates)
    assert first == {0: 14, 1: 13, 10: 4}
    # What there was: 14, 13, 12 + 12/2, 11 + 11/2, 10 + 10/2 ... and 4, 3 + 3/2, 2 + 2/2, 1 + 1/2.
    assert second == {2: 18, 3: 16.5, 11: 4.5}
    # Of what was not sent twice half and a quarter, and half of the second 14, 13 and 4.
    assert third == {4: 10 / 2 + 10 / 4, 0: 14 / 2, 10: 4 / 2}


def counts(welcome: Welcome, bases: list[int]) -> list[int]:
    """Entries of updates from these versions, of a gradient of 1 to 15."""
    found, memory = [], SelectionMemory()
    for sequence, base in enumerate(bases, 1):
        gradient = np.arange(1, LAYOUT.size + 1, dtype=np.float32)
        selection, memory = select(memory, gradient, LAYOUT, welcome, ORIGIN, sequence, base)
        assert selection.positions is not None
        found.append(len(selection.positions))
    return found


def test_a_device_that_comes_rarely_sends_more() -> None:
    """In proportion to the versions between its updates, of which the first says nothing."""
    welcome = replace(WELCOME, select=1 / LAYOUT.size, balance=1.0, select_interval=10)
    alone = counts(replace(welcome, select_interval=0), [50, 51, 100, 200])
    assert len(set(alone)) == 1
    usual = alone[0]
    often, rarely = counts(welcome, [50, 51, 52, 53]), counts(welcome, [50, 150, 250, 350])
    assert often == [usual] * 4
    assert rarely[0] == usual
    assert min(rarely[1:]) > 2 * usual


def test_how_rarely_is_a_mean_of_the_last_ten_also_without_feedback() -> None:
    for feedback in (0.0, HALVED):
        memory, welcome = SelectionMemory(), replace(WELCOME, feedback=feedback, select_interval=10)
        for sequence, base in enumerate([3, *range(103, 1104, 100), *range(1105, 1305, 2)], 1):
            _, memory = select(memory, falling(1), LAYOUT, welcome, ORIGIN, sequence, base)
            if base == 1103:
                assert memory.interval == 100
        assert memory.interval == pytest.approx(2, abs=0.01)
        assert take_back(memory).interval == memory.interval


async def test_without_feedback_nothing_comes_back() -> None:
    server = FakeServer([None, None], replace(DAMPED, feedback=0.0))
    await worker(server, listed(falling(1), falling(1), falling(0))).run()
    first, second, third = (sent(update) for update in server.updates)
    assert first == second
    assert set(third.values()) == {0}


def test_a_sent_entry_leaves_the_memory_whatever_its_coding() -> None:
    """Signs say less than was meant; the difference is not kept."""
    welcome = replace(DAMPED, values=values.CODINGS["sign"].mode)
    memory = SelectionMemory()
    for version, gradient in enumerate((falling(1), falling(0))):
        _, memory = select(memory, gradient, LAYOUT, welcome, ORIGIN, 1, version)
    left_out = memory.remainder(0.5)
    assert left_out is not None
    assert left_out[[0, 1, 10]].tolist() == [0, 0, 0]
    # Two updates later: entries 2, 3 and 11 were sent, and the others have been halved twice.
    assert left_out[[2, 3, 11]].tolist() == [0, 0, 0]
    assert left_out[[4, 9, 12]].tolist() == [10 / 4, 5 / 4, 2 / 4]


class Knowing(FakeServer):
    """It knows what the device holds: a pull brings a difference, in which nothing has changed."""

    async def pull(self, base: int | None, held: int = 0, start: int = 0, stop: int = 0) -> Model:
        whole = await super().pull(base)
        return (
            whole if base is None else Model(base, base, sparse.RAW, values.CODINGS["f32"].mode, 0, b"", b"")
        )


async def test_the_memory_outlives_a_refusal() -> None:
    """What was sent in vain, from a version that was too old, is kept as if it had not been sent."""
    server = Knowing([BaseExpired("pull again")], DAMPED)
    await worker(server, listed(falling(1), falling(0))).run()
    assert [sent(update) for update in server.updates] == [
        {0: 14, 1: 13, 10: 4},
        {0: 7, 1: 6.5, 10: 2},
    ]


async def test_the_memory_ends_with_the_model_that_it_is_of() -> None:
    """A refusal that the whole model follows: the server went back to an earlier one."""
    server = FakeServer([None, BaseExpired("the model was rolled back")], DAMPED)
    await worker(server, listed(falling(1), falling(1), falling(2))).run()
    assert sent(server.updates[-1]) == {0: 28, 1: 26, 10: 8}


async def test_another_run_remembers_nothing_of_the_last() -> None:
    server = FakeServer([None, RunReplaced("another run")], DAMPED)
    await worker(server, listed(falling(1), falling(1), falling(1))).run()
    first, second, anew = (sent(update) for update in server.updates)
    assert second != first
    assert anew == first


async def test_dense_runs_keep_no_memory() -> None:
    welcome = replace(DAMPED, select=1.0)
    assert select(SelectionMemory(), falling(1), LAYOUT, welcome, ORIGIN, 1, 1)[1] == SelectionMemory()
    server = FakeServer([None, None], welcome)
    await worker(server, listed(falling(1), falling(1), falling(1))).run()
    assert {update.values for update in server.updates} == {falling(1).tobytes()}


async def test_a_bad_batch_is_not_remembered() -> None:
    broken = falling(1)
    broken[5] = np.nan
    server = FakeServer([None], DAMPED)
    await worker(server, listed(broken, falling(1), broken, broken, falling(0))).run()
    assert [sent(update) for update in server.updates] == [
        {0: 14, 1: 13, 10: 4},
        {2: 6, 3: 5.5, 11: 1.5},
    ]


# Adaptive compression

PEAK = np.zeros(LAYOUT.size, np.float32)
PEAK[[0, 1, 10]] = 10
"""Of which the selection keeps everything; of falling(1) it keeps 381 of |g|^2 = 1015, and loses 0.62."""


def adaptive(threshold: float, **settings: object) -> Welcome:
    return replace(WELCOME, threshold=threshold, **settings)  # type: ignore[arg-type]


def is_whole(update: Update) -> bool:
    return update.index_mode == sparse.DENSE


@pytest.mark.parametrize(("threshold", "whole"), [(1e-6, True), (0.62, True), (0.63, False), (1.0, False)])
async def test_a_gradient_goes_whole_if_its_selection_loses_more_than_the_threshold(
    threshold: float, whole: bool
) -> None:
    server = FakeServer([None, None], adaptive(threshold))
    await worker(server, listed(*[falling(scale) for scale in (1, -3, 2)])).run()
    assert [is_whole(update) for update in server.updates] == [whole] * 3
    for update, scale in zip(server.updates, (1, -3, 2), strict=True):
        if whole:
            assert (update.count, update.indices) == (LAYOUT.size, b"")
            assert update.values == falling(scale).tobytes()
        else:
            assert sent(update) == {0: 14 * scale, 1: 13 * scale, 10: 4 * scale}


async def test_without_a_threshold_it_is_the_selection_whatever_it_loses() -> None:
    updates = []
    for threshold in (0.0, 1.0):
        server = FakeServer([None, None], adaptive(threshold, feedback=HALVED))
        await worker(server, listed(falling(1), PEAK, falling(2))).run()
        updates.append(server.updates)
    assert updates[0] == updates[1]
    assert not any(is_whole(update) for update in updates[0])


async def test_the_threshold_is_held_against_averages() -> None:
    """Of |g|^2 = 1015 634 are lost, of 300 nothing: k steps later 634 w of 300 + 715 w, where w = 0.9^k."""
    server = FakeServer([None] * 4, adaptive(0.55))
    await worker(server, listed(falling(1), *[PEAK] * 4)).run()
    assert [is_whole(update) for update in server.updates] == [True, True, True, True, False]


async def test_the_averages_begin_anew_with_a_run() -> None:
    server = FakeServer([None, RunReplaced("another run")], adaptive(0.55))
    await worker(server, listed(falling(1), PEAK, PEAK)).run()
    assert [is_whole(update) for update in server.updates] == [True, True, False]


async def test_what_went_whole_leaves_nothing_to_remember() -> None:
    server = FakeServer([None, None], adaptive(0.5, feedback=HALVED))
    await worker(server, listed(falling(1), falling(2), falling(0))).run()
    first, second, third = (update.values for update in server.updates)
    assert first == falling(1).tobytes()
    assert second == falling(2).tobytes()
    assert not any(third)


async def test_what_was_left_out_before_goes_along_when_all_of_it_goes() -> None:
    """Of the first, 11 at three entries and 1 at all others, the selection loses little."""
    server = FakeServer([None], adaptive(0.5, feedback=HALVED))
    small = PEAK + np.float32(1)
    await worker(server, listed(small, 100 * falling(1))).run()
    first, second = server.updates
    assert sent(first) == {0: 11, 1: 11, 10: 11}
    expected = 100 * falling(1) + np.float32(0.5)
    expected[[0, 1, 10]] -= np.float32(0.5)
    assert second.values == expected.tobytes()


async def test_what_went_whole_in_vain_is_remembered_again() -> None:
    server = Knowing([BaseExpired("pull again")], adaptive(0.5, feedback=HALVED))
    await worker(server, listed(falling(1), falling(0))).run()
    first, again = server.updates
    assert first.values == falling(1).tobytes()
    assert again.values == falling(0.5).tobytes()


@pytest.mark.parametrize("coding", values.CODINGS)
async def test_all_of_it_is_sent_with_its_magnitudes(coding: str) -> None:
    """As the run's values are coded, but for signs, which lose as much as a selection does."""
    indices = sparse.GRID if coding == "scale" else sparse.GOLOMB
    server = FakeServer([], adaptive(0.3, indices=indices, values=values.CODINGS[coding].mode))
    await worker(server, FakeBackend()).run()
    (update,) = server.updates
    assert is_whole(update)
    expected = "codebook4" if coding in ("sign", "scale") else coding
    assert update.value_mode == values.CODINGS[expected].mode
    delta = values.decode(update.values, LAYOUT.counts(None), update.value_mode)
    assert delta.tolist() == pytest.approx(gradient_at(theta_at(3)).tolist(), rel=0.2)


async def test_the_run_s_balance_shares_the_selection() -> None:
    """Three of 14 in all; shared as n^0 that is 1.4 for each tensor."""
    server = FakeServer([], replace(WELCOME, balance=0.0))
    await worker(server, listed(falling(1))).run()
    assert sent(server.updates[0]) == {0: 14, 10: 4}


# By itself

GRADIENTS = st.lists(
    st.lists(st.integers(-9, 9), min_size=LAYOUT.size, max_size=LAYOUT.size), min_size=1, max_size=6
)
"""Of a few steps; in numbers that float32 adds up exactly."""


@given(GRADIENTS, st.sampled_from([0.0, 0.4, 1.0]), st.data())
def test_without_damping_nothing_is_lost(
    gradients: list[list[int]], threshold: float, data: st.DataObject
) -> None:
    """What arrived and what was left out are all the gradients' sum, whichever updates were refused."""
    welcome = replace(WELCOME, feedback=1.0, threshold=threshold)
    memory, arrived = SelectionMemory(), np.zeros(LAYOUT.size)
    for numbers in gradients:
        selection, memory = select(memory, np.array(numbers, np.float32), LAYOUT, welcome, ORIGIN, 1, 1)
        if data.draw(st.booleans(), label="refused"):
            memory = take_back(memory)
        else:
            where = slice(None) if selection.positions is None else selection.positions
            arrived[where] += selection.gradient[where]
    left_out = memory.remainder(1.0)
    assert left_out is not None
    assert (arrived + left_out).tolist() == np.sum(gradients, axis=0).tolist()


@pytest.mark.parametrize("threshold", [0.0, 0.3])
def test_selecting_changes_nothing(threshold: float) -> None:
    """Not the memory that it is given, nor by way of the gradient the one that it returns."""
    welcome = replace(DAMPED, threshold=threshold)
    gradient = falling(1)
    _, memory = select(SelectionMemory(), gradient, LAYOUT, welcome, ORIGIN, 1, 1)
    expected = memory.remainder(0.5)
    assert expected is not None
    gradient[:] = 100  # a backend uses its buffer again
    for _ in range(2):
        selection, _ = select(memory, falling(2), LAYOUT, welcome, ORIGIN, 1, 1)
        assert selection.gradient.tolist() == (falling(2) + expected).tolist()


def test_the_memory_fades_with_the_versions_between_two_updates() -> None:
    _, memory = select(SelectionMemory(), falling(1), LAYOUT, DAMPED, ORIGIN, 1, 20)
    for base, part in ((21, 0.5), (23, 0.125), (20, 0.5)):  # one version at least
        selection, _ = select(memory, falling(0), LAYOUT, DAMPED, ORIGIN, 2, base)
        assert selection.gradient[[2, 3, 11]].tolist() == [12 * part, 11 * part, 3 * part]


def test_nothing_can_be_taken_back_before_the_first_selection() -> None:
    assert take_back(SelectionMemory()).remainder(0.5) is None


# Significance


SIGNIFICANT = replace(WELCOME, significance=1.5, feedback=1.0, select=1.0)
PARAMETERS = np.full(LAYOUT.size, 4, np.float32)
"""Of which entries beyond 6 are significant."""


def test_what_is_not_significant_gathers_until_it_is() -> None:
    """Algorithm 2: acc = eps + G; g = acc where |acc| / |v| > thr; eps = acc - g."""
    memory, went = SelectionMemory(), []
    for sequence in range(1, 4):
        selection, memory = select(memory, falling(0.5), LAYOUT, SIGNIFICANT, PARAMETERS, sequence, sequence)
        assert selection.positions is not None
        went.append(
            dict(zip(selection.positions.tolist(), selection.gradient[selection.positions], strict=True))
        )
    assert went[0] == {0: 7.0, 1: 6.5}
    # 6 to 3.5 once again, twice as large; 3 is not beyond 6 by then.
    assert went[1] == {0: 7.0, 1: 6.5} | {k: float(14 - k) for k in range(2, 8)}
    assert went[2] == {0: 7.0, 1: 6.5, 8: 9.0, 9: 7.5}
    left_out = memory.remainder(1.0)
    assert left_out is not None
    assert left_out[10:].tolist() == [6.0, 4.5, 3.0, 1.5]


def test_the_threshold_decays_with_the_number_of_the_update() -> None:
    welcome = replace(SIGNIFICANT, decays=True)
    first, fourth = (
        select(SelectionMemory(), falling(0.5), LAYOUT, welcome, PARAMETERS, sequence, sequence)[0]
        for sequence in (1, 4)
    )
    assert first.positions is not None
    assert fourth.positions is not None
    assert first.positions.tolist() == [0, 1]
    assert fourth.positions.tolist() == list(range(8))  # beyond 6 / sqrt(4)


async def test_a_step_without_anything_significant_is_an_empty_update() -> None:
    server = FakeServer([None], replace(SIGNIFICANT, significance=1e6))
    await worker(server, listed(falling(1), falling(1))).run()
    assert [update.count for update in server.updates] == [0, 0]
    assert [update.samples for update in server.updates] == [6, 6]


@pytest.mark.parametrize("significance", [-1.0, np.inf, np.nan])
async def test_a_significance_that_cannot_be_is_the_server_s_fault(significance: float) -> None:
    with pytest.raises(ServerAtFault, match="significance"):
        layout_of(replace(WELCOME, significance=significance), 1 << 30)
