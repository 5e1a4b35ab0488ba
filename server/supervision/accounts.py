"""Callers with a token of the server of several runs: who they are, and which may do what."""

from collections.abc import Mapping

from aiohttp import web

from edgeflock.server.connections import source_of
from edgeflock.server.http.bodies import failed_login, login_response, read_token
from edgeflock.server.identity import Audit, Caller, Logins, Register
from edgeflock.server.supervision.switch import Account
from edgeflock.server.web import LoginAttempts
from edgeflock.shared.errors import Unauthorized
from edgeflock.shared.identity import secret_of

COOKIE = "edgeflock-runs"

_ROLES = ("viewer", "admin")
"""Roles that count here. A device joins one run, with a token of that run."""


class Accounts:
    """The register of the server itself: its viewers and admins see all runs."""

    def __init__(self, register: Register, audit: Audit) -> None:
        self.register, self.audit = register, audit
        self._logins, self._attempts = Logins(register), LoginAttempts()

    def identify(self, headers: Mapping[str, str]) -> Caller | None:
        """Return the viewer or admin of these headers, by its token or else its login; None: neither."""
        secret, login = secret_of(headers), _login_of(headers)
        try:
            caller = self.register.identify(secret) if secret or not login else self._logins.identify(login)
        except Unauthorized:
            return None
        return caller if caller.role in _ROLES else None

    def account(self, headers: Mapping[str, str]) -> Account:
        """Return what a caller may do in all runs."""
        caller = self.identify(headers)
        if caller is None:
            return Account()
        digest = caller.digest
        return Account(caller.role, caller.name, lambda: self.register.is_valid_token(digest))

    async def log_in(self, request: web.Request) -> web.Response:
        """{"token": text}: a cookie that stands for it, or a refusal."""
        token, source = await read_token(request), source_of(request.remote or "")
        caller = self.identify({"authorization": f"Bearer {token}"})
        if caller is None:
            needs = "this needs a token of the server: edgeflock token create FOLDER --role viewer"
            parts = self._attempts, self.register, self.audit
            return failed_login(*parts, token, source, Unauthorized(needs))
        number = self._logins.begin(caller)
        self.audit.note(caller.name, "logged in to the page", address=source)
        return login_response(request, caller.role, COOKIE, number)

    async def log_out(self, request: web.Request) -> web.Response:
        """End the login of the cookie; without one nothing happens."""
        self._logins.end(_login_of(request.headers))
        response = web.json_response({})
        response.del_cookie(COOKIE, httponly=True, samesite="Strict")
        return response


def _login_of(headers: Mapping[str, str]) -> str:
    """Return the login number of the cookie; empty without one."""
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value.strip('"')
    return ""
