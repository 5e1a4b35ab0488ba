"""Logins of browsers: a number in a cookie stands for a token. Stored, they outlive the server."""

import secrets

from edgeflock.server.identity.records import Caller, Login
from edgeflock.server.identity.register import Register
from edgeflock.shared.errors import Unauthorized
from edgeflock.shared.identity import digest_of

LOGIN_SECONDS = 8 * 3600.0
"""Seconds that a login lasts."""

LIMIT = 100
"""The most logins of a token at a time. The oldest end first."""


class Logins:
    """The logins of one register. Methods raise OSError or sqlite3.Error if the database fails."""

    def __init__(self, register: Register) -> None:
        self._register = register

    def begin(self, caller: Caller) -> str:
        """Begin a login and return its number, of 256 random bits."""
        number, now = secrets.token_urlsafe(32), self._register.clock()
        with self._register.transaction():
            known = self._register.logins.items()
            over = [one for one, login in known if login.until <= now]
            own = [(login.until, one) for one, login in known if login.token == caller.digest]
            for one in {*over, *(one for _, one in sorted(own, reverse=True)[LIMIT - 1 :])}:
                self._register.remove("logins", one)
            self._register.put("logins", digest_of(number), Login(caller.digest, now + LOGIN_SECONDS))
        return number

    def identify(self, number: str) -> Caller:
        """Who began the login. Raises Unauthorized if it is over or its token is not valid any more."""
        digest = digest_of(number)
        if digest not in self._register.logins:
            self._register.refresh()  # another server may have begun it
        login = self._register.logins.get(digest)
        if login is None or login.until <= self._register.clock():
            raise Unauthorized("the login has ended")
        return self._register.identify_digest(login.token)

    def end(self, number: str) -> None:
        """End the login of this number."""
        if (digest := digest_of(number)) in self._register.logins:
            with self._register.transaction():
                self._register.remove("logins", digest)
