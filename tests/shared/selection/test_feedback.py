"""Error feedback: nothing of a gradient is lost but what damping takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeflock.shared.model.layout import Layout
from edgeflock.shared.selection import recall, remember, select_largest

numbers = st.floats(-1e6, 1e6, width=32)


@st.composite
def selections(draw: st.DrawFn) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """(a gradient, the indices that are sent of it)."""
    entries = draw(st.lists(numbers, min_size=1, max_size=20))
    sent = draw(st.sets(st.integers(0, len(entries) - 1)))
    return np.array(entries, np.float32), np.array(sorted(sent), np.int64)


@given(selections(), st.floats(0, 1))
def test_what_is_sent_is_forgotten_and_the_rest_is_damped(
    drawn: tuple[NDArray[np.float32], NDArray[np.int64]], decay: float
) -> None:
    corrected, sent = drawn
    memory = remember(corrected, sent, decay)
    assert memory.dtype == np.float32
    for k, entry in enumerate(corrected):
        assert memory[k] == (0 if k in sent else np.float32(decay) * entry)


@given(selections(), st.floats(2**-10, 1))
def test_what_is_sent_and_what_is_kept_make_the_whole(
    drawn: tuple[NDArray[np.float32], NDArray[np.int64]], decay: float
) -> None:
    corrected, sent = drawn
    update = np.zeros_like(corrected)
    update[sent] = corrected[sent]
    memory = remember(corrected, sent, decay).astype(np.float64)
    np.testing.assert_allclose(update + memory / decay, corrected, rtol=1e-6, atol=1e-37)
    if decay == 1:
        assert (update + memory).tolist() == corrected.tolist()


@given(selections())
def test_neither_touches_the_gradient(drawn: tuple[NDArray[np.float32], NDArray[np.int64]]) -> None:
    """A backend's buffer stays its own."""
    gradient, sent = drawn
    before = gradient.tobytes()
    for kept in (remember(gradient, sent, 1.0), recall(np.ones_like(gradient), gradient)):
        kept += 1
    assert gradient.tobytes() == before


def test_without_a_memory_the_gradient_is_itself() -> None:
    gradient = np.array([1, -2], np.float32)
    assert recall(None, gradient) is gradient


def test_recall_adds() -> None:
    recalled = recall(np.array([0.5, -1], np.float32), np.array([1, 4], np.float32))
    assert recalled.dtype == np.float32
    assert recalled.tolist() == [1.5, 3]


@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_over_a_run_everything_arrives_once(decay: float) -> None:
    """Entry k of gradient i arrives whole, times decay for each update that it waited for, or still waits."""
    layout = Layout.from_shapes([("a", (12,)), ("b", (3,))])
    # Small integers and their halvings: every sum is exact.
    gradients = np.random.default_rng(5).integers(-8, 9, (10, layout.size)).astype(np.float32)
    memory: NDArray[np.float32] | None = None
    arrived = np.zeros(layout.size)
    expected = np.zeros(layout.size)
    waiting: list[list[float]] = [[] for _ in range(layout.size)]
    for gradient in gradients:
        corrected = recall(memory, gradient)
        sent = select_largest(corrected, layout, 0.2)
        arrived[sent] += corrected[sent]
        memory = remember(corrected, sent, decay)
        for k, queue in enumerate(waiting):
            queue.append(float(gradient[k]))
            if k in sent:
                expected[k] += sum(queue)
                queue.clear()
            queue[:] = [entry * decay for entry in queue]
    assert arrived.tolist() == expected.tolist()
    assert memory is not None
    assert memory.tolist() == [sum(queue) for queue in waiting]
