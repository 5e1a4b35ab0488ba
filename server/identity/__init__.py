"""Who may do what: tokens, devices and their keys, in a file of their own beside the journal.

`Register` is what the server asks and the commands write, store.py its file; audit.py keeps who did what;
certificate.py has the server's own TLS, authority.py certificates of devices. The file is not the journal:
commands write it while a server has that, copies of a journal go from hand to hand and must hold no secrets,
and an old copy of a run must not bring back a revoked device, nor end a quarantine. No event loop, no
network. Imports nothing of the server.
"""

from edgeflock.server.identity.audit import Audit
from edgeflock.server.identity.authority import Authority, key_shown
from edgeflock.server.identity.certificate import Certificate, own_certificate, pin_of_file, server_tls
from edgeflock.server.identity.entry import Entry
from edgeflock.server.identity.records import NOBODY, Caller, Enrolled, Joined, Role
from edgeflock.server.identity.register import ADMIN_TOKEN, Register
from edgeflock.server.identity.store import IDENTITIES

__all__ = [
    "ADMIN_TOKEN",
    "IDENTITIES",
    "NOBODY",
    "Audit",
    "Authority",
    "Caller",
    "Certificate",
    "Enrolled",
    "Entry",
    "Joined",
    "Register",
    "Role",
    "key_shown",
    "own_certificate",
    "pin_of_file",
    "server_tls",
]
