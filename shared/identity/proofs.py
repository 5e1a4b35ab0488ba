"""Messages that a device signs with its own key (Ed25519, RFC 8032), so that no other can use its name.

A signed message holds its whole context: each part has its place and a fixed length, except the name, which
is last. So one message cannot be valid for another question, server, challenge or device.
"""

import hashlib

CHALLENGE, ROTATE = "Edgeflock-Challenge", "Edgeflock-Rotate"
"""Headers of the answer that begins a session: the challenge to sign, and whether a new key is required."""

CHALLENGE_BYTES = 32
REALM_BYTES = 16
KEY_BYTES = 32

_PRIME = 2**255 - 19

_OF_ORDER_8 = int.from_bytes(
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
)

_SMALL = {0, 1, _PRIME - 1, _OF_ORDER_8, _PRIME - _OF_ORDER_8}
"""y of the eight points of small order: of order 4, 1, 2, 8 and 8."""

_SESSION, _JOIN = b"edgeflock session 1\n", b"edgeflock join 1\n"


def session_message(challenge: bytes, realm: bytes, pin: bytes, name: str) -> bytes:
    """Return the message for a session.

    It has the server's challenge, the register of devices that it belongs to, and the public key that the
    server showed (NO_PIN if the device compares none).
    """
    assert (len(challenge), len(realm), len(pin)) == (CHALLENGE_BYTES, REALM_BYTES, 32)
    return _SESSION + challenge + realm + pin + name.encode()


def join_message(token: str, pin: bytes, public: bytes, name: str) -> bytes:
    """The message for joining with `token` as the device of the key `public`."""
    assert (len(pin), len(public)) == (32, KEY_BYTES)
    return _JOIN + hashlib.sha256(token.encode()).digest() + pin + public + name.encode()


def new_key() -> bytes:
    """Generate a private key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.generate().private_bytes_raw()


def public_of(key: bytes) -> bytes:
    """The public key of a private one."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()


def sign(key: bytes, message: bytes) -> bytes:
    """Return the signature, 64 bytes."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(key).sign(message)


def is_valid_key(public: bytes) -> bool:
    """Whether a public key can have an owner: no point of small order, and in its canonical encoding.

    A signature of a point of small order proves nothing: for the identity, anybody can make one for any
    message.
    """
    y = int.from_bytes(public, "little") % (1 << 255)
    return len(public) == KEY_BYTES and y < _PRIME and y not in _SMALL


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the key's owner made `signature` of these words."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not is_valid_key(public):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
