"""The filter: `pi`, `state:paused`, `loss>1.5`, `!class:laptop`; terms apart, all of which must hold."""

import re
from collections.abc import Callable, Mapping

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.frames import DeviceRow

Labels = Mapping[str, str]
"""Device name -> what the operator calls it."""
Test = Callable[[DeviceRow, Labels], bool]

KEYS = {name.rstrip("_"): name for name in DeviceRow._fields}
_SHORT = {
    "device": "name",
    "stale": "staleness",
    "in": "ingress",
    "out": "egress",
    "temp": "temperature",
    "batt": "battery",
    "accuracy": "stream_accuracy",
}
"""Titles of the table that differ from their column's name."""
_TERM = re.compile(r"(?P<key>[a-z_]+)(?P<relation>>=|<=|[:=<>])(?P<value>.*)")
_SEARCHED = ("name", "state", "class_", "backend", "paused_because")


def parse(query: str) -> Test:
    """The test that a device must pass. Raises ConfigError for a key that no device has."""
    tests = [_term(term) for term in query.lower().split()]
    return lambda row, labels: all(test(row, labels) for test in tests)


def _term(term: str) -> Test:
    if term.startswith("!") and len(term) > 1:
        denied = _term(term[1:])
        return lambda row, labels: not denied(row, labels)
    match = _TERM.fullmatch(term)
    if match is None:
        return lambda row, labels: (
            any(term in str(getattr(row, key) or "").lower() for key in _SEARCHED)
            or term in labels.get(row.name, "").lower()
        )
    key, relation, value = _SHORT.get(match["key"], match["key"]), match["relation"], match["value"]
    if key == "label":
        return lambda row, labels: value in labels.get(row.name, "").lower()
    if key not in KEYS:
        raise ConfigError(f"filter {term!r}: no column {key!r}; known are label, {', '.join(KEYS)}")
    field = KEYS[key]
    if relation in ("<", ">", "<=", ">="):
        return _comparison(term, field, relation, value)
    if relation == "=":
        return lambda row, _: _text(getattr(row, field)) == value
    return lambda row, _: value in _text(getattr(row, field))


def _comparison(term: str, field: str, relation: str, value: str) -> Test:
    try:
        bound = float(value)
    except ValueError:
        raise ConfigError(f"filter {term!r}: {value!r} is not a number") from None

    def test(row: DeviceRow, labels: Labels) -> bool:
        found = getattr(row, field)
        if not isinstance(found, int | float):
            return False
        return {
            "<": found < bound,
            ">": found > bound,
            "<=": found <= bound,
            ">=": found >= bound,
        }[relation]

    return test


def _text(value: object) -> str:
    return "" if value is None else str(value).lower()
