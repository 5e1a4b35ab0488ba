"""Identities, in the form that both ends use: tokens, keys and their proofs, pinned certificates.

tokens.py is the text that lets a machine join or an operator log in; names.py has the rules for device names.
proofs.py has what a device signs with its own key. pins.py has the public key of a server, and TLS that
accepts no other. No event loop, no network, no files. Imports errors. proofs.py and pins.py load
`cryptography` on first use.
"""

from edgeflock.shared.identity import names
from edgeflock.shared.identity.pins import NO_PIN, is_loopback, pin_in, pin_of, tls_for, with_certificate
from edgeflock.shared.identity.proofs import (
    CHALLENGE,
    CHALLENGE_BYTES,
    ROTATE,
    is_owned,
    join_words,
    new_key,
    proves,
    public_of,
    session_words,
    sign,
)
from edgeflock.shared.identity.tokens import Token, digest_of, from_text, text_of

__all__ = [
    "CHALLENGE",
    "CHALLENGE_BYTES",
    "NO_PIN",
    "ROTATE",
    "Token",
    "digest_of",
    "from_text",
    "is_owned",
    "is_loopback",
    "join_words",
    "names",
    "new_key",
    "pin_in",
    "pin_of",
    "proves",
    "public_of",
    "session_words",
    "sign",
    "text_of",
    "tls_for",
    "with_certificate",
]
