"""Which of several servers a device belongs to, and when it goes back there, in virtual time."""

import asyncio
from collections import Counter
from random import Random

from yarl import URL

from edgeflock.client.transport.dialing import HOME_SECONDS, Home, order_servers
from edgeflock.devices.emulation.clock import run_virtually

SERVERS = [URL(f"https://gateway-{number}:8470") for number in range(4)]
NAMES = [f"device-{number}" for number in range(2000)]


def test_each_server_is_the_first_of_an_equal_part() -> None:
    first = Counter(order_servers(SERVERS, name)[0] for name in NAMES)
    assert all(abs(first[server] - 500) < 80 for server in SERVERS)


def test_those_of_one_that_fails_spread_over_all_others() -> None:
    orders = [order_servers(SERVERS, name) for name in NAMES]
    second = Counter(order[1] for order in orders if order[0] == SERVERS[0])
    assert len(second) == 3
    assert min(second.values()) > 100


def test_the_order_is_the_name_s_alone() -> None:
    assert order_servers(SERVERS, "pi") == order_servers(reversed(SERVERS), "pi")
    left = [server for server in order_servers(SERVERS, "pi") if server != SERVERS[1]]
    assert order_servers([SERVERS[0], *SERVERS[2:]], "pi") == left


class Away:
    """A device that asks its second server once a second."""

    def __init__(self, *ready: bool | None) -> None:
        """What its first one answers, look by look; the last for ever."""
        self.ready = list(ready)
        self.looks: list[float] = []

    async def look(self, server: URL) -> bool | None:
        assert server == SERVERS[0]
        self.looks.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.1)
        return self.ready.pop(0) if len(self.ready) > 1 else self.ready[0]

    def called(self, seed: int = 0, until: float = 600.0) -> float | None:
        """When it is called back."""

        async def ask() -> float | None:
            home, now = Home(SERVERS[0], Random(seed), self.look), asyncio.get_running_loop().time
            try:
                while now() < until:
                    await asyncio.sleep(1)
                    if home.should_return(SERVERS[1]):
                        return now()
                return None
            finally:
                await home.close()

        return run_virtually(ask())


def test_it_goes_back_within_the_time_and_not_in_step_with_others() -> None:
    times = [Away(True).called(seed) for seed in range(50)]
    assert all(time is not None and time <= HOME_SECONDS + 3 for time in times)
    assert len(set(times)) > 15


def test_it_keeps_looking_while_nobody_answers() -> None:
    away = Away(*[None] * 10, True)
    assert away.called() is not None
    assert len(away.looks) == 11


def test_one_that_answers_and_stands_by_is_left_to_itself() -> None:
    away = Away(False)
    assert away.called() is None
    assert len(away.looks) == 3


def test_one_that_is_not_ready_yet_is_asked_again() -> None:
    away = Away(None, False, False, True)
    assert away.called() is not None


def test_at_its_first_one_nothing_is_asked() -> None:
    away = Away(True)

    async def ask() -> None:
        home = Home(SERVERS[0], Random(0), away.look)
        for _ in range(100):
            await asyncio.sleep(1)
            assert not home.should_return(SERVERS[0])
        await home.close()

    run_virtually(ask())
    assert away.looks == []
