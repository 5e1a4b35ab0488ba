"""Keys of a round: agreement between two devices, encryption between them, and signatures.

Agreement is X25519 (RFC 7748) and HKDF-SHA256 (RFC 5869), encryption ChaCha20-Poly1305 (RFC 8439), a
signature Ed25519 (RFC 8032) by the identity with which a device has joined. All keys but the identity are
new in each round. `cryptography` is loaded on first use.
"""

from dataclasses import dataclass

from edgeflock.shared.identity import public_of, sign, verify

KEY_BYTES = 32
SIGNATURE_BYTES = 64
TAG_BYTES = 16

_MASK, _CHANNEL = b"edgeflock sum 1 mask\n", b"edgeflock sum 1 channel\n"
_KEYS, _SURVIVORS = b"edgeflock sum 1 keys\n", b"edgeflock sum 1 survivors\n"


@dataclass(frozen=True, slots=True)
class PublicKeys:
    """The keys of one device in one round, and its signature of them."""

    channel: bytes
    """X25519, for the encryption of shares."""
    mask: bytes
    """X25519, for masks."""
    identity: bytes
    """Ed25519, which stays the same."""
    signature: bytes

    @property
    def octets(self) -> bytes:
        return self.channel + self.mask + self.identity + self.signature

    @classmethod
    def from_octets(cls, octets: bytes) -> "PublicKeys":
        """Decode PUBLIC_BYTES."""
        channel, mask, identity = (octets[n * KEY_BYTES : (n + 1) * KEY_BYTES] for n in range(3))
        return cls(channel, mask, identity, octets[3 * KEY_BYTES :])

    def is_signed(self, run: str, base: int) -> bool:
        """Whether the identity signed these keys for a sum from version `base` of `run`."""
        return verify(self.identity, keys_message(run, base, self.channel, self.mask), self.signature)


PUBLIC_BYTES = 3 * KEY_BYTES + SIGNATURE_BYTES


def keys_message(run: str, base: int, channel: bytes, mask: bytes) -> bytes:
    """Return what a device signs with its keys."""
    return _KEYS + base.to_bytes(8, "big") + channel + mask + run.encode()


def survivors_message(digest: bytes, mask: bytes, survivors: bytes) -> bytes:
    """Return what a device signs before it reveals: the round, its own mask key, and who is in the sum.

    The mask key is new in each round, so no signature of an earlier one is right again.
    """
    return _SURVIVORS + digest + mask + survivors


def sign_keys(identity: bytes, run: str, base: int, channel: bytes, mask: bytes) -> PublicKeys:
    """Return the public keys of the private ones, signed by the private key `identity`."""
    public = public_key(channel), public_key(mask)
    return PublicKeys(*public, public_of(identity), sign(identity, keys_message(run, base, *public)))


def public_key(private: bytes) -> bytes:
    """Return the public X25519 key of 32 private bytes."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def mask_seed(private: bytes, public: bytes, digest: bytes) -> bytes:
    """Return the seed of the mask that two devices share: 32 bytes. Raises ValueError for a weak key."""
    return _agree(private, public, _MASK + digest)


def channel_key(private: bytes, public: bytes, digest: bytes) -> bytes:
    """Return the key for shares between two devices: 32 bytes. Raises ValueError for a weak key."""
    return _agree(private, public, _CHANNEL + digest)


def seal(key: bytes, sender: int, digest: bytes, octets: bytes) -> bytes:
    """Encrypt and authenticate `octets` of the device at position `sender`. It seals once with a key."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(key).encrypt(sender.to_bytes(12, "big"), octets, digest)


def unseal(key: bytes, sender: int, digest: bytes, octets: bytes) -> bytes:
    """Decrypt what `seal` returned. Raises ValueError if it is not from `sender` in this round."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        return ChaCha20Poly1305(key).decrypt(sender.to_bytes(12, "big"), octets, digest)
    except InvalidTag as error:
        raise ValueError("it was not encrypted for this device in this round") from error


def _agree(private: bytes, public: bytes, info: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    own = X25519PrivateKey.from_private_bytes(private)
    shared = own.exchange(X25519PublicKey.from_public_bytes(public))
    return HKDF(SHA256(), KEY_BYTES, None, info).derive(shared)
