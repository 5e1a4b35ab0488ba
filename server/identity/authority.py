"""Certificates of devices, for TLS in which both ends prove who they are.

A device gets one when it joins, for its own Ed25519 key. The server signs it with a key for this use only.
The TLS handshake proves it. The register knows whether the key is still a device's (middleware.py).
"""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from edgeflock.server.identity.certificate import CERTIFICATE as OWN_CERTIFICATE
from edgeflock.server.identity.certificate import KEY as OWN_KEY
from edgeflock.server.identity.certificate import Certificate, self_signed

CERTIFICATE, KEY = "device-authority.pem", "device-authority-key.pem"

_DAYS = 3650
"""A device to be kept out before that is revoked."""


def key_files(directory: Path) -> tuple[Certificate, Certificate]:
    """The server's own certificate, and the one that signs devices' certificates."""
    return (
        Certificate(directory / OWN_CERTIFICATE, directory / OWN_KEY),
        Certificate(directory / CERTIFICATE, directory / KEY),
    )


class Authority:
    """The authority of one run. It is made if its directory has none."""

    def __init__(self, directory: Path) -> None:
        own = self_signed(Certificate(directory / CERTIFICATE, directory / KEY), "edgeflock devices", ())
        key = load_pem_private_key(own.key.read_bytes(), None)
        assert isinstance(key, EllipticCurvePrivateKey), "made here"
        self._key, self.pem = key, own.certificate.read_text("ascii")
        self._own = x509.load_pem_x509_certificate(self.pem.encode())

    def certificate(self, public: bytes) -> str:
        """A certificate in PEM for the device that has this Ed25519 key."""
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, public.hex()[:32])]))
            .issuer_name(self._own.subject)
            .public_key(Ed25519PublicKey.from_public_bytes(public))
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=_DAYS))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()

    def verified_key(self, der: bytes) -> bytes | None:
        """The Ed25519 key of a certificate, in DER, that a gateway was shown.

        None if it was shown none; empty if the certificate is not valid.
        """
        if not der:
            return None
        try:
            certificate = x509.load_der_x509_certificate(der)
            certificate.verify_directly_issued_by(self._own)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.InvalidVersion):
            return b""
        is_current = certificate.not_valid_before_utc <= datetime.now(UTC) <= certificate.not_valid_after_utc
        return _raw_key(certificate) if is_current else b""


def demand(tls: ssl.SSLContext, authority: str, *, required: bool) -> None:
    """Ask clients for a certificate of this authority, in PEM. If `required`, TLS fails without one."""
    tls.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    tls.load_verify_locations(cadata=authority)


def peer_certificate(tls: ssl.SSLObject | None) -> bytes:
    """The certificate, in DER, that the peer has shown and proved. Empty if it showed none."""
    return (None if tls is None else tls.getpeercert(binary_form=True)) or b""


def peer_key(tls: ssl.SSLObject | None) -> bytes | None:
    """The Ed25519 key of the certificate that the peer has shown and proved. None if it showed none."""
    der = peer_certificate(tls)
    return _raw_key(x509.load_der_x509_certificate(der)) if der else None


def _raw_key(certificate: x509.Certificate) -> bytes:
    """The certificate's raw public key. Empty if it is not an Ed25519 key."""
    public = certificate.public_key()
    return public.public_bytes_raw() if isinstance(public, Ed25519PublicKey) else b""
