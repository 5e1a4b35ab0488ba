"""What a browser meets that opens an invitation, for the operator who makes one."""

from urllib.parse import urlsplit

from edgeflock.shared.identity import is_loopback

_REMEDY = (
    "for an address without a warning set server.certificate and server.key, or use a proxy with ACME "
    "(docs/how-to/browsers.md)"
)


def hindrance(address: str, fingerprint: str = "") -> str:
    """What keeps browsers elsewhere from `address`, or makes them warn, and the remedy; empty: nothing known.

    `fingerprint` is that of the certificate, if the server has made it itself.
    """
    parts = urlsplit(address)
    if is_loopback(parts.hostname or ""):
        return (
            "only browsers on the server's own machine reach this address; invite under one that others "
            "reach (edgeflock token create --url https://HOST)"
        )
    if parts.scheme != "https":
        return f"browsers give no page a device's key over plain http://; {_REMEDY}"
    if fingerprint:
        return (
            "browsers warn of the certificate, which the server has made itself. Visitors continue under "
            f"Advanced if its SHA-256 is {fingerprint}; Safari may refuse the WebSocket even then; {_REMEDY}"
        )
    return ""
