"""TLS with one server's public key and no other, whoever has signed its certificate.

A pin is the SHA-256 of the certificate's SubjectPublicKeyInfo (as in RFC 7469): a renewed certificate of the
same key has the same pin. It is compared at the end of the TLS handshake, in which the server has proved that
the key is its own, and before anything is said.
"""

import hashlib
import ipaddress
import ssl
import tempfile
from functools import lru_cache

from edgeflock.shared.errors import ConfigError, WrongKey
from edgeflock.shared.identity.tokens import PREFIX, Token

NO_PIN = bytes(32)
"""Stands in a proof where no public key was compared."""


def pin_of(certificate: bytes) -> bytes:
    """The pin of a certificate in DER."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = x509.load_der_x509_certificate(certificate).public_key()
    spki = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).digest()


def with_certificate(tls: ssl.SSLContext, key: bytes, certificate: str) -> ssl.SSLContext:
    """`tls`, which from now on shows the certificate, in PEM, of an Ed25519 key. Raises ssl.SSLError."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem = Ed25519PrivateKey.from_private_bytes(key).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    with tempfile.NamedTemporaryFile() as file:  # OpenSSL reads files only; nobody else may read this one
        file.write(pem + certificate.encode("ascii"))
        file.flush()
        tls.load_cert_chain(file.name, password="")  # nobody is asked for one, whatever the file says
    return tls


@lru_cache(maxsize=64)
def pinned(pin: bytes) -> ssl.SSLContext:
    """TLS for clients that ends with WrongKey if the server's key is another one."""

    class Pinned(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            shown = self.getpeercert(binary_form=True)
            if shown is None or pin_of(shown) != pin:
                raise WrongKey(
                    "the server's key is not the one that the token names: somebody stands between, or the "
                    "server has a new key; nothing was sent"
                )

    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the pin says more
    context.sslobject_class = Pinned
    return context


def tls_for(
    scheme: str, host: str, pin: bytes, *, insecure: bool, of_its_own: bool = False
) -> ssl.SSLContext | bool:
    """What aiohttp's `ssl` is to be for a server. Raises ConfigError if the URL may not be used.

    That is TLS with `pin`, or with the system's authorities if there is none. Without TLS only what asks for
    it with `insecure` goes beyond this machine. With `of_its_own` the caller may change what comes.
    """
    if scheme == "https" and of_its_own:
        return pinned.__wrapped__(pin) if pin else ssl.create_default_context()
    if scheme == "https":
        return pinned(pin) if pin else True
    if pin:
        raise ConfigError(f"the token is of a server with TLS: write https://{host}, not http://{host}")
    if not insecure and not is_loopback(host):
        raise ConfigError(
            f"http://{host} goes over the network in the clear; use https://, or allow it with --insecure "
            "(client.insecure = true)"
        )
    return True


def pin_in(token: str) -> bytes:
    """That of a token's text; empty if it is some other secret. Raises ConfigError if it is damaged."""
    return Token.parse(token).pin if token.startswith(f"{PREFIX}.") else b""


def is_loopback(host: str) -> bool:
    """Whether only this machine can be meant."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return host in ("localhost", "localhost.localdomain", "ip6-localhost")
