"""Who may do what: tokens, devices and their keys, in a file of their own beside the journal, or, where
servers stand by for each other, in tables of their own in the database that they share.

`Register` is what the server asks and the commands write, store.py and databases.py where it lies; audit.py
keeps who did what; logins.py which browsers have shown a token; certificate.py has the server's own TLS,
authority.py certificates of devices. The file is not the journal: commands write it while a server has that,
copies of a journal go from hand to hand and must hold no secrets, and an old copy of a run must not bring
back a revoked device, nor end a quarantine. No event loop, no network but to that database. Imports ledger,
for its connections.
"""

from edgeflock.server.identity.audit import Audit
from edgeflock.server.identity.authority import Authority, certificate_shown, demand, key_shown, keys_of
from edgeflock.server.identity.certificate import Certificate, own_certificate, pin_of_file, server_tls, share
from edgeflock.server.identity.databases import ELSEWHERE, IDENTITIES
from edgeflock.server.identity.entry import SessionAuthenticator
from edgeflock.server.identity.logins import SECONDS, Logins
from edgeflock.server.identity.records import NOBODY, Caller, Enrolled, Joined, Ordered, Role, Who
from edgeflock.server.identity.register import ADMIN_TOKEN, Register

__all__ = [
    "ADMIN_TOKEN",
    "ELSEWHERE",
    "IDENTITIES",
    "NOBODY",
    "SECONDS",
    "Audit",
    "Authority",
    "Caller",
    "Certificate",
    "Enrolled",
    "SessionAuthenticator",
    "Joined",
    "Logins",
    "Ordered",
    "Register",
    "Role",
    "Who",
    "certificate_shown",
    "demand",
    "key_shown",
    "keys_of",
    "own_certificate",
    "pin_of_file",
    "server_tls",
    "share",
]
