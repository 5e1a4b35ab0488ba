"""Tokens, devices, their keys and roles. They are in a file of their own in the journal's directory, or,
with standbys, in tables of their own in the database that the servers share.

`Register` answers the server and takes what commands write. store.py and databases.py keep it. audit.py logs
who did what. logins.py knows which browsers have shown a token. certificate.py has the server's TLS, and
authority.py the devices' certificates. The file is separate from the journal for three reasons: commands
write it while a server holds the journal; copies of a journal must not contain secrets; an old copy of a
run must not restore a revoked device or end a quarantine. No event loop; no network but that database's.
It imports ledger, for its connections.
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
