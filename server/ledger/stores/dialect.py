"""Translates SQLite's statements to PostgreSQL: types, placeholders, names of tables."""

import re
from functools import cache

TYPES = {"INTEGER": "BIGINT", "REAL": "DOUBLE PRECISION", "TEXT": "TEXT", "BLOB": "BYTEA"}
"""SQLite's type -> PostgreSQL's."""


@cache
def to_postgres(statement: str, prefix: str = "") -> str:
    """`statement` in PostgreSQL's syntax. `prefix` goes before the names of its tables."""
    if prefix:
        statement = re.sub(
            r"\b(FROM|INTO|UPDATE|EXISTS) (?!SET\b)(\w+)\b(?= |$)", rf"\1 {prefix}\2", statement
        )
    if "CREATE TABLE" in statement:
        for word, kind in TYPES.items():
            statement = re.sub(rf"\b{word}\b", kind, statement)
        statement = statement.replace("WITHOUT ROWID", "")
    return re.sub(r"\bwindow\b", '"window"', statement.replace("?", "%s"))
