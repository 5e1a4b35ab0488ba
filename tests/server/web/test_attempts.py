"""Logins that failed, by a clock of the test's own."""

from edgeflock.server.web.attempts import ATTEMPTS, COUNTED, MINUTE, LoginAttempts


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_an_address_that_guesses_waits_and_no_other() -> None:
    clock = Clock()
    attempts = LoginAttempts(clock)
    for number in range(ATTEMPTS):
        assert attempts.count_failure("192.0.2.1", f"token {number}") == 0
        clock.now += 1
    assert attempts.count_failure("192.0.2.1", "token 0") == MINUTE - ATTEMPTS
    assert attempts.count_failure("192.0.2.2", "token 0") == 0
    clock.now += MINUTE - ATTEMPTS
    assert attempts.count_failure("192.0.2.1", "token 0") == 0, "the first is a minute ago"
    assert attempts.count_failure("192.0.2.1", "token 0") == 1


def test_an_account_that_is_guessed_from_everywhere_waits_and_no_other() -> None:
    attempts = LoginAttempts(Clock())
    for number in range(ATTEMPTS):
        assert attempts.count_failure(f"192.0.2.{number}", "token 0") == 0
    assert attempts.count_failure("192.0.2.99", "token 0") == MINUTE
    assert attempts.count_failure("192.0.2.99", "token 1") == 0, "what was refused did not count"


def test_guesses_from_one_address_that_name_nobody_hide_no_other_address() -> None:
    """All such together are a hundred a minute, so that an audit grows no faster."""
    attempts = LoginAttempts(Clock())
    for _ in range(3 * ATTEMPTS):
        attempts.count_failure("192.0.2.1", "")
    for number in range(9 * ATTEMPTS):
        assert attempts.count_failure(f"198.51.100.{number}", "") == 0
    assert attempts.count_failure("192.0.2.2", "") == MINUTE


def test_failures_take_bounded_room() -> None:
    attempts = LoginAttempts(Clock())
    for _ in range(ATTEMPTS):
        attempts.count_failure("192.0.2.1", "")
    for number in range(COUNTED):
        attempts.count_failure(f"2001:db8:0:{number:x}::/64", f"token {number}")
    assert attempts.count_failure("192.0.2.1", "") == 0, "the oldest are forgotten"
