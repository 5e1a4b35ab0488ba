"""Stores of a journal: rows in SQLite or PostgreSQL, their schema, their checksums, and the lease.

`store.JournalStore` is what a journal needs of either (sqlite.py, postgres.py). chain.py defines a row's
checksum, mark.py notes how far the journal got, examination.py checks what is read. migrations.py has the
tables and the steps from earlier schemas. lease.py holds the right to write to PostgreSQL, links.py connects
to it. The rows' meaning is the ledger's. Imports edgeflock.shared only.
"""
