"""Logins of browsers: a number in a cookie stands for a token. Dataset, they outlive the server."""

import secrets

from edgeflock.server.identity.records import Caller
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
        number, until = secrets.token_urlsafe(32), self._register.clock() + LOGIN_SECONDS
        with self._register.transaction(logins=True):
            self._register.db.execute("DELETE FROM logins WHERE until <= ?", (until - LOGIN_SECONDS,))
            self._register.db.execute(
                "INSERT INTO logins VALUES (?, ?, ?)", (digest_of(number), caller.digest, until)
            )
            self._register.db.execute(
                "DELETE FROM logins WHERE token = ? AND number NOT IN "
                f"(SELECT number FROM logins WHERE token = ? ORDER BY until DESC LIMIT {LIMIT})",
                (caller.digest, caller.digest),
            )
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
            with self._register.transaction(logins=True):
                self._register.db.execute("DELETE FROM logins WHERE number = ?", (digest,))
