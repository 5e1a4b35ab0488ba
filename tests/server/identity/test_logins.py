"""Logins: what a browser's cookie stands for, by a clock of the test's own."""

from contextlib import closing
from pathlib import Path

import pytest

from edgeflock.server.identity import IDENTITIES, LOGIN_SECONDS, Logins, Register
from edgeflock.server.identity import logins as module
from edgeflock.shared.errors import Unauthorized
from tests.server.identity.test_register import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def register(tmp_path: Path, clock: Clock) -> Register:
    return Register(tmp_path, clock)


def test_a_login_stands_for_its_token_until_it_is_over(register: Register, clock: Clock) -> None:
    logins, caller = Logins(register), register.identify(register.create("viewer").text)
    number, other = logins.begin(caller), logins.begin(caller)
    assert number != other
    assert len(number) >= 43, "256 bits"
    assert logins.identify(number) == caller
    for none in ("", "guessed"):
        with pytest.raises(Unauthorized, match="the login has ended"):
            logins.identify(none)
    logins.end(number)
    logins.end("guessed")
    with pytest.raises(Unauthorized, match="the login has ended"):
        logins.identify(number)
    clock.now += LOGIN_SECONDS - 1
    assert logins.identify(other) == caller
    clock.now += 1
    with pytest.raises(Unauthorized, match="the login has ended"):
        logins.identify(other)


def test_a_login_outlives_the_server_and_its_end_does_too(register: Register, tmp_path: Path) -> None:
    logins, token = Logins(register), register.create("admin")
    caller = register.identify(token.text)
    number, ended = logins.begin(caller), logins.begin(caller)
    logins.end(ended)
    register.close()
    assert number.encode() not in (tmp_path / IDENTITIES).read_bytes(), "no secret is on the disk"
    with closing(Register(tmp_path, register.clock)) as after:
        assert Logins(after).identify(number) == caller
        with pytest.raises(Unauthorized, match="the login has ended"):
            Logins(after).identify(ended)


def test_a_login_ends_with_its_token(register: Register, clock: Clock) -> None:
    logins = Logins(register)
    caller = register.identify(register.create("viewer").text)
    number = logins.begin(caller)
    short = logins.begin(register.identify(register.create("viewer", seconds=60).text))
    register.delete(register.tokens[caller.digest].id)
    with pytest.raises(Unauthorized, match="does not know"):
        logins.identify(number)
    clock.now += 60
    with pytest.raises(Unauthorized, match="has expired"):
        logins.identify(short)


def test_a_login_that_another_process_began_is_known(
    register: Register, clock: Clock, tmp_path: Path
) -> None:
    caller = register.identify(register.create("viewer").text)
    with closing(Register(tmp_path, clock)) as other:
        number = Logins(other).begin(caller)
        assert Logins(register).identify(number) == caller


def test_logins_take_bounded_room(register: Register, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT", 3)
    logins, caller = Logins(register), register.identify(register.create("viewer").text)
    numbers = []
    for _ in range(4):
        numbers.append(logins.begin(caller))
        clock.now += 1
    assert len(register.logins) == 3
    with pytest.raises(Unauthorized, match="the login has ended"):
        logins.identify(numbers[0])
    clock.now += LOGIN_SECONDS
    logins.begin(caller)
    assert len(register.logins) == 1, "those that are over are forgotten"


def test_who_may_only_look_ends_no_login_of_another_token(
    register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIMIT", 3)
    logins, caller = Logins(register), register.identify(register.create("viewer").text)
    admin = register.identify(register.create("admin").text)
    number = logins.begin(admin)
    for _ in range(4):
        logins.begin(caller)
    assert logins.identify(number) == admin
