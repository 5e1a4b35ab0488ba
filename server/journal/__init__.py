"""What is durable of a run, in SQLite or PostgreSQL: `Contents` reads a journal, `Journal` also writes it.

What changes theta is in the journal, or is a function of it, and is in its chain of checksums. records.py has
what rows hold. The package `stores`, below all other modules here, has the stores of rows and their schema.
Imports database, defence, descent and edgeflock.shared.
"""

from edgeflock.server.journal.contents import Contents
from edgeflock.server.journal.journal import Journal
from edgeflock.server.journal.records import DeviceTotals
