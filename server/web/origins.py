"""Decides which pages are the server's own.

With each WebSocket and POST a browser sends the page's site (Origin, RFC 6454). It is not enough that this is
the site in Host. An attacker can point a name to this server once his page is loaded (DNS rebinding).
So the name must also be one of the server's.
"""

import ipaddress
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Origins:
    """The origins of one server."""

    listed: frozenset[str]
    """Origins that its operator names, as browsers write them."""
    host_names: frozenset[str]
    """Names of its host, in lower case."""

    @classmethod
    def from_names(cls, listed: Iterable[str], *hosts: str) -> "Origins":
        """The origins of an operator's list, and of a server on this machine that is known as `hosts`."""
        own = socket.gethostname().lower()
        return cls(frozenset(listed), frozenset({"localhost", own, f"{own}.local", *map(str.lower, hosts)}))

    def accepts(self, origin: str, scheme: str, host: str) -> bool:
        """Whether a page of `origin` may use the server.

        The request came by `scheme` (http or https) to `host` (a name or an address, and a port).
        """
        if origin.lower() in self.listed:
            return True
        return origin.lower() == f"{scheme}://{host.lower()}" and (scheme == "https" or self.is_own(host))

    def foreign_reason(self, headers: Mapping[str, str], scheme: str, host: str, *, has_login: bool) -> str:
        """Why a browser may not act for its page. Empty: it may, or these are no browser's headers."""
        origin = headers.get("Origin")
        if origin is None:
            # Only a browser sends a cookie, and a browser sends its Origin.
            is_browser = has_login and not headers.get("Authorization")
            return "a request with a login cookie needs an Origin header" if is_browser else ""
        if self.accepts(origin, scheme, host):
            return ""
        return (
            "a page of another site may neither act here nor open a WebSocket: its Origin is "
            f"{origin!r:.200}, and this is {f'{scheme}://{host}'!r:.200}; server.origins names others "
            "that may"
        )

    def is_own(self, host: str) -> bool:
        """Whether `host` is an address, a name of this machine, or named by the operator.

        No attacker can point these here. Over TLS the certificate protects instead.
        """
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self.host_names or name.endswith(".localhost") or _is_address(name):
            return True
        return any(urlsplit(origin).netloc == host.lower() for origin in self.listed)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
