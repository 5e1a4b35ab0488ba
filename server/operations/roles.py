"""Who may do what: devices and viewers have the run's token, an admin has one of its own."""

import hmac

from edgeflock.shared.protocol.frames import Role


class Roles:
    """Tokens -> roles."""

    def __init__(self, token: str, admin_token: str) -> None:
        """Without `token` everybody may take part and look; without `admin_token` nobody is an admin."""
        self._token = token.encode()
        self._admin_token = admin_token.encode()

    def of(self, header: str) -> Role | None:
        """Whose Authorization header it is; None: nobody's whom the run knows."""
        octets = header.encode("utf-8", "surrogateescape")  # a header may hold any byte
        if self._admin_token and _is(octets, self._admin_token):
            return "admin"
        return "viewer" if not self._token or _is(octets, self._token) else None


def _is(header: bytes, token: bytes) -> bool:
    return hmac.compare_digest(header, b"Bearer " + token)
