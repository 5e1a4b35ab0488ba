"""Logins and attempts, by a clock of the test's own."""

from edgeflock.server.web.logins import ATTEMPTS, MINUTE, MOST, SECONDS, Attempts, Logins


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_login_stands_for_its_token_until_it_is_over() -> None:
    clock = Clock()
    logins = Logins(clock)
    number, other = logins.begin("secret"), logins.begin("secret")
    assert number != other
    assert "secret" not in number
    assert len(number) >= 43, "256 bits"
    assert logins.token(number) == "secret"
    assert (logins.token(""), logins.token("guessed")) == ("", "")
    logins.end(number)
    logins.end("guessed")
    assert (logins.token(number), logins.token(other)) == ("", "secret")
    clock.now += SECONDS - 1
    assert logins.token(other) == "secret"
    clock.now += 1
    assert logins.token(other) == ""


def test_logins_take_bounded_room() -> None:
    logins = Logins(Clock())
    numbers = [logins.begin(f"{n}") for n in range(MOST + 1)]
    assert (logins.token(numbers[0]), logins.token(numbers[1])) == ("", "1")


def test_who_guesses_waits_and_nobody_else() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    for _ in range(ATTEMPTS):
        assert attempts.wait("192.0.2.1") == 0
        attempts.failed("192.0.2.1")
        clock.now += 1
    assert attempts.wait("192.0.2.1") == MINUTE - ATTEMPTS
    assert attempts.wait("192.0.2.2") == 0
    clock.now += MINUTE - ATTEMPTS
    assert attempts.wait("192.0.2.1") == 0, "the first is a minute ago"
    attempts.failed("192.0.2.1")
    assert attempts.wait("192.0.2.1") == 1
    for n in range(MOST):
        attempts.failed(f"2001:db8:0:{n:x}::/64")
    assert attempts.wait("192.0.2.1") == 0, "the oldest are forgotten"
