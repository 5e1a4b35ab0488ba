"""The filter: `pi`, `state:paused`, `loss>1.5`, `seen>5m`, `in>1MB`, `!class:laptop`.

Spaces separate terms, which must all match. `|` separates alternatives.
"""

import re
from collections.abc import Callable

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.frames import DeviceRow

Test = Callable[[DeviceRow], bool]

KEYS = {name.rstrip("_"): name for name in DeviceRow._fields}
_ALIASES = {
    "device": "name",
    "label": "labels",
    "stale": "staleness",
    "seen": "last_seen",
    "in": "ingress",
    "out": "egress",
    "temp": "temperature",
    "batt": "battery",
    "accuracy": "stream_accuracy",
    "~loss": "smoothed_loss",
    "upd/s": "updates_per_s",
    "stand": "standing",
    "version": "edgeflock",
}
"""Other names of columns: most are their titles in the table."""
_TERM = re.compile(r"(?P<key>~?[a-z_]+(?:/s)?)(?P<relation>>=|<=|[:=<>])(?P<value>.*)")
_NUMBER = re.compile(r"(?P<number>[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?)(?P<unit>[a-z]*)")
_BYTES = {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9}
_UNITS = {
    "ingress": _BYTES,
    "egress": _BYTES,
    "last_seen": {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0},
}
"""Units after a number, by column. Ages without a unit are in seconds."""
_TEXT_FIELDS = ("name", "state", "class_", "backend", "labels", "paused_because", "why_left")


def parse(query: str, now: float) -> Test:
    """Return the test for a device, at the Unix time `now`.

    Raises ConfigError for an unknown key, and for a value that is not a number.
    """
    alternatives = [
        [_term(term, now) for term in alternative.split()] for alternative in query.lower().split("|")
    ]
    alternatives = [tests for tests in alternatives if tests] or [[]]
    return lambda row: any(all(test(row) for test in tests) for tests in alternatives)


def _term(term: str, now: float) -> Test:
    if term.startswith("!") and len(term) > 1:
        denied = _term(term[1:], now)
        return lambda row: not denied(row)
    match = _TERM.fullmatch(term)
    if match is None:
        return lambda row: any(term in _text(getattr(row, key)) for key in _TEXT_FIELDS)
    key, relation, value = _ALIASES.get(match["key"], match["key"]), match["relation"], match["value"]
    if key not in KEYS:
        raise ConfigError(f"filter {term!r}: no column {key!r}; known are {', '.join(KEYS)}")
    field = KEYS[key]
    if relation in ("<", ">", "<=", ">="):
        return _comparison(term, field, relation, value, now)
    if relation == "=":
        return lambda row: _text(getattr(row, field)) == value
    return lambda row: value in _text(getattr(row, field))


def _comparison(term: str, field: str, relation: str, value: str, now: float) -> Test:
    units = _UNITS.get(field, {})
    number = _NUMBER.fullmatch(value)
    if number is None or number["unit"] not in ("", *units):
        with_units = f", with or without one of {', '.join(units)}" if units else ""
        raise ConfigError(f"filter {term!r}: {value!r} is not a number{with_units}")
    bound = float(number["number"]) * units.get(number["unit"], 1.0)

    def test(row: DeviceRow) -> bool:
        cell = getattr(row, field)
        if not isinstance(cell, int | float):
            return False
        found = now - cell if field == "last_seen" else cell
        return {
            "<": found < bound,
            ">": found > bound,
            "<=": found <= bound,
            ">=": found >= bound,
        }[relation]

    return test


def _text(value: object) -> str:
    return "" if value is None else str(value).lower()
