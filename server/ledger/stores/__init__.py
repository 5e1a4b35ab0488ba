"""Where a journal lies: the same rows in SQLite or in PostgreSQL, their schema, their checksums, and who may
write them.

`store.Store` is what a journal needs of either (sqlite.py, postgres.py). chain.py says what a row's checksum
is, mark.py how far all of it got, examination.py what of it is as it was written, migrations.py what tables
there are and how those of earlier versions become them; lease.py who writes to PostgreSQL, links.py how one
connects to it. What rows mean is the ledger's to know. Imports edgeflock.shared only.
"""
