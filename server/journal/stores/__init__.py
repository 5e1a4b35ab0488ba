"""Stores of a journal: its tables in a database (server/database), their schema and their checksums.

sqlite.py and postgres.py open a journal that is written. chain.py defines a row's checksum, mark.py notes how
far the journal got, examination.py checks what is read. schema.py has the tables and the number of their
schema. The rows' meaning is the ledger's. Imports database and edgeflock.shared only.
"""
