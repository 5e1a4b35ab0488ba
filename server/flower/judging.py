"""Runs a user's evaluate_fn during training: in a thread, one model after the other."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from flwr.app import ArrayRecord, MetricRecord

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


class FlowerEvaluator:
    """Evaluations by the ServerApp. A context manager: its end cancels those that have not begun."""

    def __init__(self, function: EvaluateFn | None) -> None:
        self._function = function
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evaluate_fn")
        self._pending: deque[tuple[int, int, Future[MetricRecord | None]]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def submit(self, number: int, version: int, arrays: ArrayRecord) -> None:
        """Evaluate the model of a round in the thread, if there is a function."""
        if self._function is not None:
            self._pending.append((number, version, self._thread.submit(self._function, number, arrays)))

    def pop_finished(self, *, wait: bool = False) -> Iterator[tuple[int, int, MetricRecord | None]]:
        """Yield (round, version, metrics) of finished evaluations, in order; with `wait` of all.

        Raises what the function raised.
        """
        while self._pending and (wait or self._pending[0][2].done()):
            number, version, future = self._pending.popleft()
            yield number, version, future.result()
