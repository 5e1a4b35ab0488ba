"""The server's TLS key and certificate: made at its first start, or given by its operator.

Devices compare the public key (shared/identity/pins.py), so no authority has to sign it. The certificate is
its own authority, for tools that need one: `curl --cacert certificate.pem`.
"""

import ipaddress
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from edgeflock.server.identity.store import shared_file
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.files import write_atomically
from edgeflock.shared.identity import is_loopback, pin_of
from edgeflock.shared.settings.server import ServerSettings

CERTIFICATE, KEY = "certificate.pem", "certificate-key.pem"

_DAYS, _RENEWAL_DAYS = 3650, 90
"""Days that a certificate is valid, and the days left when a new one is made of the same key."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The files of a certificate and its key, in PEM."""

    certificate: Path
    key: Path


def own_certificate(directory: Path, host: str) -> Certificate:
    """The certificate in `directory`. It is made if there is none, and renewed with the same key if old."""
    names = ("localhost", "127.0.0.1", "::1", socket.gethostname()[:63], host)
    return self_signed(Certificate(directory / CERTIFICATE, directory / KEY), "edgeflock", names)


def self_signed(own: Certificate, subject: str, names: Iterable[str]) -> Certificate:
    """The self-signed certificate in these files. It is made or renewed as needed."""
    if not own.key.exists():
        write_atomically(own.key, new_key())
    key = load_pem_private_key(own.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey), "made here"
    now = datetime.now(UTC)
    if own.certificate.exists():
        until = x509.load_pem_x509_certificate(own.certificate.read_bytes()).not_valid_after_utc
        if until > now + timedelta(days=_RENEWAL_DAYS):
            return own
    write_atomically(own.certificate, _sign(key, subject, names, now), 0o644)
    return own


def new_key() -> bytes:
    """A new private key in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def share(url: str, own: Certificate) -> None:
    """Make all servers whose journal is the database `url` use one key, this one if it is the first."""
    stored = own.key.read_bytes() if own.key.exists() else b""
    shared = shared_file(url, own.key.name, stored or new_key())
    if shared != stored:
        own.certificate.unlink(missing_ok=True)  # it is of another key
        write_atomically(own.key, shared)


def server_tls(own: Certificate) -> tuple[ssl.SSLContext, bytes]:
    """(TLS to listen with, the public key's pin). Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(own.certificate, own.key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the certificate {str(own.certificate)!r} and the key {str(own.key)!r} cannot be used: {error}; "
            "both are files in PEM, and the key is without a password"
        ) from error
    return context, pin_of_file(own.certificate)


def tls_of(server: ServerSettings, directory: Path) -> tuple[ssl.SSLContext | None, bytes]:
    """Return (TLS to listen with, pin of the public key that devices see). Raises ConfigError."""
    plain = server.insecure or is_loopback(server.host)
    if server.key and not server.certificate:
        raise ConfigError("server.key is set without server.certificate: set both or neither")
    if server.key:
        return server_tls(Certificate(Path(server.certificate), Path(server.key)))
    if server.certificate:
        if not plain:
            raise ConfigError(
                "server.certificate without server.key is that of a proxy, to which the server speaks plain "
                "HTTP: set server.host = 127.0.0.1 or server.insecure = true, or set server.key"
            )
        return None, pin_of_file(Path(server.certificate))
    return (None, b"") if plain else server_tls(own_certificate(directory, server.host))


def pin_of_file(certificate: Path) -> bytes:
    """The pin of the first certificate in a PEM file. Raises ConfigError."""
    try:
        text = certificate.read_text("ascii")
        end = "-----END CERTIFICATE-----"
        first = text[text.index("-----BEGIN CERTIFICATE-----") : text.index(end) + len(end)]
        return pin_of(ssl.PEM_cert_to_DER_cert(first))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"server.certificate = {str(certificate)!r} is no certificate in PEM: {error}"
        ) from error


def own_fingerprint(directory: Path, pin: bytes) -> str:
    """SHA-256 of the certificate that the server has made itself, as browsers show it; empty: it has none."""
    own = directory / CERTIFICATE
    if not pin or not own.exists() or pin_of_file(own) != pin:
        return ""
    return x509.load_pem_x509_certificate(own.read_bytes()).fingerprint(hashes.SHA256()).hex(":").upper()


def _sign(key: ec.EllipticCurvePrivateKey, common_name: str, names: Iterable[str], now: datetime) -> bytes:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # a device's clock may be behind
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if alternatives := [_general_name(name) for name in dict.fromkeys(names) if name]:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
