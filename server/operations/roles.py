"""Who may do what: devices, viewers and admins have a token each; an admin's opens everything."""

import hmac
from typing import Literal

Who = Literal["device", "viewer", "admin"]

_SCHEME = b"bearer "


class Roles:
    """Tokens -> roles."""

    def __init__(self, token: str, admin_token: str, viewer_token: str = "") -> None:
        """Without `token` everybody may take part and look; without one of the others nobody has its role."""
        self._token = token.encode()
        self._admin_token = admin_token.encode()
        self._viewer_token = viewer_token.encode()

    def of(self, header: str) -> Who | None:
        """Whose Authorization header it is; None: nobody's whom the run knows."""
        octets = header.encode("utf-8", "surrogateescape")  # a header may hold any byte
        if _is(octets, self._admin_token):
            return "admin"
        if not self._token or _is(octets, self._viewer_token):
            return "viewer"
        return "device" if _is(octets, self._token) else None


def _is(header: bytes, token: bytes) -> bool:
    """The scheme's case says nothing (RFC 9110, section 11.1)."""
    scheme, secret = header[: len(_SCHEME)], header[len(_SCHEME) :].strip(b" ")
    return bool(token) and scheme.lower() == _SCHEME and hmac.compare_digest(secret, token)
