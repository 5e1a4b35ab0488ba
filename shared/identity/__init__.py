"""Identities, in the form that both ends use: tokens, keys and their proofs, pinned certificates.

tokens.py is the text that lets a machine join or an operator log in; names.py has the rules for device names.
proofs.py has what a device signs with its own key. pins.py has the public key of a server, and TLS that
accepts no other. No event loop, no network, no files. Imports errors. proofs.py and pins.py load
`cryptography` on first use.
"""

from edgeflock.shared.identity import names
from edgeflock.shared.identity.pins import (
    NO_PIN,
    is_loopback,
    load_certificate,
    pin_from_token,
    pin_of,
    tls_for,
)
from edgeflock.shared.identity.proofs import (
    CHALLENGE,
    CHALLENGE_BYTES,
    ROTATE,
    is_valid_key,
    join_message,
    new_key,
    public_of,
    session_message,
    sign,
    verify,
)
from edgeflock.shared.identity.tokens import (
    Token,
    digest_of,
    from_base64url,
    secret_of,
    to_base64url,
    training_page,
)
