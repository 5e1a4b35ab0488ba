"""TLS that accepts one public key of a server, with any issuer of the certificate.

A pin is the SHA-256 of the certificate's SubjectPublicKeyInfo (as in RFC 7469), so a renewed certificate of
the same key has the same pin. It is compared at the end of the TLS handshake, before any data is sent. In the
handshake the server has proved that it owns the key.
"""

import hashlib
import ipaddress
import ssl
import tempfile
from functools import lru_cache

from edgeflock.shared.errors import ConfigError, WrongKey
from edgeflock.shared.identity.tokens import PREFIX, Token

NO_PIN = bytes(32)
"""The pin in a proof if no public key was compared."""


def pin_of(certificate: bytes) -> bytes:
    """The pin of a certificate in DER."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = x509.load_der_x509_certificate(certificate).public_key()
    spki = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).digest()


def load_certificate(tls: ssl.SSLContext, key: bytes, certificate: str) -> ssl.SSLContext:
    """Make `tls` show the certificate, in PEM, of an Ed25519 key. Raises ssl.SSLError."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem = Ed25519PrivateKey.from_private_bytes(key).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    with tempfile.NamedTemporaryFile() as file:  # OpenSSL reads only files; other users may not read this one
        file.write(pem + certificate.encode("ascii"))
        file.flush()
        tls.load_cert_chain(file.name, password="")  # never prompt for a password
    return tls


@lru_cache(maxsize=64)
def pinned_context(pin: bytes) -> ssl.SSLContext:
    """Return TLS for clients that fails with WrongKey if the server has another key."""

    class Pinned(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            shown = self.getpeercert(binary_form=True)
            if shown is None or pin_of(shown) != pin:
                raise WrongKey(
                    "the server's key is not the one that the token names: the token is of another server, "
                    "the server has a new key, or another machine intercepts the connection; nothing was sent"
                )

    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the pin is stricter
    context.sslobject_class = Pinned
    return context


def tls_for(
    scheme: str, host: str, pin: bytes, *, insecure: bool, mutable: bool = False
) -> ssl.SSLContext | bool:
    """Return aiohttp's `ssl` argument for a server. Raises ConfigError if the URL may not be used.

    That is TLS with `pin`, or with the system's authorities if there is none. Plain HTTP to another machine
    needs `insecure`. With `mutable` the caller may change the returned context.
    """
    if scheme == "https" and mutable:
        return pinned_context.__wrapped__(pin) if pin else ssl.create_default_context()
    if scheme == "https":
        return pinned_context(pin) if pin else True
    if pin:
        raise ConfigError(
            "the token belongs to a server with TLS: write https:// in its address, not http://"
        )
    if not insecure and not is_loopback(host):
        raise ConfigError(
            f"http://{host} is not encrypted; use https://, or allow plain HTTP with --insecure "
            "(client.insecure = true)"
        )
    return True


def pin_from_token(token: str) -> bytes:
    """Return the pin in a token's text; empty for another secret. Raises ConfigError for a damaged token."""
    return Token.parse(token).pin if token.startswith(f"{PREFIX}.") else b""


def is_loopback(host: str) -> bool:
    """Whether `host` can only be this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return host in ("localhost", "localhost.localdomain", "ip6-localhost")
