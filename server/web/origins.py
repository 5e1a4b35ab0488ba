"""Which pages are the server's own.

A browser says with each WebSocket and each POST of which site the page is that sends it (Origin, RFC 6454).
That it is the site that the browser thinks it speaks to (Host) is not enough: whoever has a name makes it
point to this server once his page is loaded (DNS rebinding). So the name must be one of the server's, too.
"""

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Origins:
    """Of one server."""

    named: frozenset[str]
    """Origins that its operator names, as a browser writes them."""
    names: frozenset[str]
    """Names of its host, in lower case."""

    @classmethod
    def of(cls, named: Iterable[str], *hosts: str) -> "Origins":
        """Those of an operator, and of a server on this machine that is known as `hosts`."""
        own = socket.gethostname().lower()
        return cls(frozenset(named), frozenset({"localhost", own, f"{own}.local", *map(str.lower, hosts)}))

    def takes(self, origin: str, scheme: str, host: str) -> bool:
        """Whether a page of `origin` may speak to the server, to which the request came by `scheme` (http or
        https) as `host` (a name or an address, and a port).
        """
        if origin.lower() in self.named:
            return True
        return origin.lower() == f"{scheme}://{host.lower()}" and (scheme == "https" or self.knows(host))

    def knows(self, host: str) -> bool:
        """Whether nobody else can have made `host` point to here: it is an address, a name of this host's, or
        named. Over TLS the certificate says so instead.
        """
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self.names or name.endswith(".localhost") or _is_address(name):
            return True
        return any(urlsplit(origin).netloc == host.lower() for origin in self.named)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
