"""When a device gives a server up that says nothing, in virtual time; and when it does not."""

import asyncio
import math
import socket
import sys
from collections.abc import Awaitable, Callable

import pytest

from edgeflock.client.training.conversation import DeviceConversation
from edgeflock.client.transport.liveness import HANG_SECONDS, Liveness, ServerHangs
from edgeflock.client.transport.session import RecordSession
from edgeflock.devices.emulation.clock import run_virtually
from edgeflock.shared.protocol.messages import PROTOCOL, Hello

CONVERSATION = DeviceConversation(Hello(PROTOCOL, "pi", b"", {}))


class Server:
    """Says what a test wants of it."""

    def __init__(self, *, pongs: bool = False, answers: bool = False) -> None:
        self.pongs, self.alive = pongs, answers
        self.signs = 0
        self.pings: list[float] = []
        self.asked: list[float] = []

    def count_signs(self) -> int:
        return self.signs

    async def ping(self) -> None:
        self.pings.append(asyncio.get_running_loop().time())
        self.signs += self.pongs

    async def answers(self, seconds: float) -> bool:
        self.asked.append(asyncio.get_running_loop().time())
        if not self.alive:
            await asyncio.sleep(seconds)
        return self.alive


def waiting(server: Server, awaited: Callable[[], Awaitable[str]], times: int = 1) -> tuple[str, float]:
    """(what a device that waits for it meets, after how many virtual seconds) the last of so many times."""

    async def wait() -> tuple[str, float]:
        liveness, now = Liveness(server.answers), asyncio.get_running_loop().time
        for _ in range(times):
            began = now()
            try:
                met = await liveness.during(awaited(), lambda: server)
            except ServerHangs as error:
                met = str(error)
        return met, now() - began

    return run_virtually(wait())


async def never() -> str:
    await asyncio.sleep(1e6)
    return "late"


def after(seconds: float) -> Callable[[], Awaitable[str]]:
    async def answer() -> str:
        await asyncio.sleep(seconds)
        return "an answer"

    return answer


def test_an_answer_in_time_costs_no_ping() -> None:
    server = Server()
    assert waiting(server, after(2.5)) == ("an answer", 2.5)
    assert server.pings == server.asked == []


def test_a_server_of_which_nothing_comes_is_given_up() -> None:
    server = Server()
    assert waiting(server, never) == ("the server has sent nothing for 8 s", HANG_SECONDS)
    assert (server.pings, server.asked) == ([3.0], [5.0])


def test_one_that_answers_pings_is_waited_for_and_asked_ever_more_rarely() -> None:
    server = Server(pongs=True)
    assert waiting(server, after(3600.0)) == ("an answer", 3600.0)
    assert server.asked == []
    assert server.pings[:3] == [3.0, 7.0, 11.0]
    gaps = [later - sooner for sooner, later in zip(server.pings, server.pings[1:], strict=False)]
    assert gaps == sorted(gaps)
    assert max(gaps) == 51.0
    assert len(gaps) < 100


def test_one_that_reads_nothing_but_lives_is_waited_for() -> None:
    """It writes to a slow disk, or holds this device back."""
    server = Server(answers=True)
    assert waiting(server, after(600.0)) == ("an answer", 600.0)
    assert len(server.asked) < 60


def test_what_trickles_in_is_a_sign_of_life() -> None:
    server = Server()

    async def trickle() -> str:
        for _ in range(100):
            await asyncio.sleep(2.9)
            server.signs += 1
        return "a large model"

    assert waiting(server, trickle)[0] == "a large model"


def test_a_question_that_is_asked_again_has_twice_as_long() -> None:
    """So that a line which is only slow carries it in the end."""
    assert [waiting(Server(), never, times)[1] for times in (1, 2, 3, 4, 5)] == [8.0, 16.0, 32.0, 64.0, 64.0]
    later = iter([never, after(0.5), never])
    assert waiting(Server(), lambda: next(later)(), 3)[1] == HANG_SECONDS  # one was answered in between


def test_who_was_asleep_itself_takes_nobody_for_hung() -> None:
    """What came meanwhile is looked at after the time is over."""
    server = Server()

    async def answers(seconds: float) -> bool:
        server.signs += 1  # it was there before, and nobody of this process ran
        return False

    async def wait() -> str:
        return await Liveness(answers).during(after(60.0)(), lambda: server)

    assert run_virtually(wait()) == "an answer"


def test_who_is_cancelled_leaves_nothing_behind() -> None:
    async def wait() -> None:
        inner = asyncio.ensure_future(never())
        waits = asyncio.create_task(Liveness(Server().answers).during(inner))
        await asyncio.sleep(1)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        assert inner.cancelled()

    run_virtually(wait())


class Line:
    """A session's socket, over one of its own."""

    def __init__(self, own: socket.socket) -> None:
        self._own = own

    def get_extra_info(self, name: str) -> socket.socket:
        assert name == "socket"
        return self._own


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system does not say what has not left")
def test_a_long_message_that_leaves_over_a_slow_line_is_a_sign_of_life() -> None:
    own, other = socket.socketpair()
    with own, other:
        session = RecordSession(Line(own), 1 << 20, math.inf, CONVERSATION)  # type: ignore[arg-type]
        before = session.count_signs()
        for _ in range(8):
            own.send(bytes(4096))
        assert session.count_signs() == before  # it is on its way, and nothing has left
        assert session.count_signs() == before
        other.recv(4096)
        assert session.count_signs() == before + 1
        assert session.count_signs() == before + 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system does not say what has not left")
def test_a_ping_that_leaves_is_none() -> None:
    """The system of a server that hangs takes it."""
    own, other = socket.socketpair()
    with own, other:
        session = RecordSession(Line(own), 1 << 20, math.inf, CONVERSATION)  # type: ignore[arg-type]
        own.send(bytes(28))
        before = session.count_signs()
        other.recv(28)
        assert session.count_signs() == before
