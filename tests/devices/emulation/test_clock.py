"""The virtual clock: nobody waits, and everything happens when it should, in the same order every time.

A sleep that took real time would not end within the time that a test may take.
"""

import asyncio
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.devices.emulation.clock import run_virtually

YEAR = 3600.0 * 24 * 365
MOMENT = 1e-6
"""Timers this close count as one."""


def now() -> float:
    return asyncio.get_running_loop().time()


def test_it_begins_at_zero_and_hands_the_result_back() -> None:
    async def main() -> tuple[float, str]:
        return now(), "result"

    assert run_virtually(main()) == (0.0, "result")


def test_what_the_program_raises_comes_out() -> None:
    async def main() -> None:
        await asyncio.sleep(1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run_virtually(main())


def test_a_second_program_begins_at_zero_again() -> None:
    async def main() -> float:
        began = now()
        await asyncio.sleep(5)
        return began

    assert [run_virtually(main()), run_virtually(main())] == [0, 0]


@pytest.mark.parametrize("far", [1e8, 30 * YEAR])
def test_far_out_short_sleeps_are_still_short(far: float) -> None:
    async def main() -> list[float]:
        times = []
        await asyncio.sleep(far)
        for _ in range(4):
            times.append(now())
            await asyncio.sleep(0.001)
        return times

    expected = [far, far + 0.001, far + 0.002, far + 0.003]
    assert run_virtually(main()) == pytest.approx(expected, abs=4 * MOMENT, rel=0)


# Eighths of a second are exact, so that equal times are equal numbers.
delays = st.lists(st.integers(0, 40).map(lambda eighths: eighths / 8), max_size=6)


@given(naps=st.lists(delays, max_size=6))
def test_everybody_wakes_on_time_and_in_order(naps: list[list[float]]) -> None:
    async def sleeper(who: int, log: list[tuple[int, float]]) -> None:
        for delay in naps[who]:
            await asyncio.sleep(delay)
            log.append((who, now()))

    async def main() -> list[tuple[int, float]]:
        log: list[tuple[int, float]] = []
        await asyncio.gather(*(sleeper(who, log) for who in range(len(naps))))
        return log

    log = run_virtually(main())
    for who, delays in enumerate(naps):
        assert [time for sleeper, time in log if sleeper == who] == list(accumulate(delays))
    times = [time for _, time in log]
    assert times == sorted(times)
    assert run_virtually(main()) == log, "ties are broken the same way every time"


def test_sleepers_that_end_together_wake_in_the_same_order_every_time() -> None:
    async def sleeper(who: int, log: list[int]) -> None:
        for _ in range(3):
            await asyncio.sleep(0.1)
            log.append(who)

    async def main() -> list[int]:
        log: list[int] = []
        await asyncio.gather(*(sleeper(who, log) for who in range(30)))
        assert now() == pytest.approx(0.3, abs=MOMENT)
        return log

    first = run_virtually(main())
    assert sorted(first) == sorted(list(range(30)) * 3)
    assert all(run_virtually(main()) == first for _ in range(3))


def test_sleepers_a_millisecond_apart_wake_a_millisecond_apart() -> None:
    async def sleeper(delay: float) -> float:
        await asyncio.sleep(delay)
        return now()

    async def main() -> list[float]:
        return await asyncio.gather(*(sleeper(delay) for delay in (0.003, 0.001, 0.002)))

    assert run_virtually(main()) == pytest.approx([0.003, 0.001, 0.002], abs=2 * MOMENT)


def test_a_waiter_goes_on_when_it_is_told_to() -> None:
    async def main() -> float:
        reported = asyncio.Event()

        async def tell() -> None:
            await asyncio.sleep(3)
            reported.set()
            await asyncio.sleep(100)

        telling = asyncio.create_task(tell())
        await reported.wait()
        telling.cancel()
        return now()

    assert run_virtually(main()) == 3


def test_timeouts() -> None:
    async def main() -> list[object]:
        log: list[object] = []
        try:
            async with asyncio.timeout(2.5):
                await asyncio.sleep(1)
                log.append(now())
                await asyncio.sleep(YEAR)
        except TimeoutError:
            log.append(("out", now()))
        async with asyncio.timeout(2):
            await asyncio.sleep(1.5)
        log.append(now())
        return log

    assert run_virtually(main()) == [1.0, ("out", 2.5), 4.0]


def test_waiting_with_a_timeout() -> None:
    async def main() -> tuple[int, int, float]:
        tasks = [asyncio.create_task(asyncio.sleep(delay)) for delay in (1, 2, 50)]
        done, pending = await asyncio.wait(tasks, timeout=10)
        for task in pending:
            task.cancel()
        return len(done), len(pending), now()

    assert run_virtually(main()) == (2, 1, 10)


def test_cancelled_tasks_clean_up_and_their_timers_hold_nobody_up() -> None:
    async def main() -> list[object]:
        log: list[object] = []

        async def sleeper() -> None:
            try:
                await asyncio.sleep(YEAR)
            finally:
                log.append(("cleaned up", now()))

        task = asyncio.create_task(sleeper())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(1)
        log.append(now())
        return log

    assert run_virtually(main()) == [("cleaned up", 1.0), 2.0]


def test_waiting_for_what_cannot_come_is_an_error() -> None:
    log = []

    async def main() -> None:
        await asyncio.sleep(7)
        try:
            await asyncio.Event().wait()
        finally:
            log.append(now())

    with pytest.raises(RuntimeError, match="nothing can happen any more"):
        run_virtually(main())
    assert log == [7.0], "who waits is still cleaned up after"


def test_short_sleeps_add_up() -> None:
    async def main() -> float:
        for _ in range(1000):
            await asyncio.sleep(1e-7)
        return now()

    assert run_virtually(main()) == pytest.approx(1e-4, rel=1e-6)
