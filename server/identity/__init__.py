"""Tokens, devices, their keys and roles, in a database of their own.

`Register` answers the server and takes what commands write, and store.py keeps it. audit.py logs who did
what. logins.py knows which browsers have shown a token. certificate.py has the server's TLS, and authority.py
the devices' certificates. The file is separate from the journal for three reasons: commands write it while a
server holds the journal; copies of a journal must not contain secrets; an old copy of a run must not restore
a revoked device or end a quarantine. No event loop; no network but that database's, by server/database.
"""

from edgeflock.server.identity.audit import Audit
from edgeflock.server.identity.authority import Authority, demand, key_files, peer_certificate, peer_key
from edgeflock.server.identity.certificate import (
    Certificate,
    own_certificate,
    own_fingerprint,
    pin_of_file,
    server_tls,
    share,
    tls_of,
)
from edgeflock.server.identity.entry import SessionAuthenticator
from edgeflock.server.identity.logins import LOGIN_SECONDS, Logins
from edgeflock.server.identity.records import NOBODY, Caller, CallerRole, JoinResult, Role, StoredOrder
from edgeflock.server.identity.register import ADMIN_TOKEN, Register, write_admin_token
from edgeflock.server.identity.store import IDENTITIES
