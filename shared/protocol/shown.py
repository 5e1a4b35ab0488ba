"""Text from the other end, made safe for a log or a terminal: one line, short, without control characters."""

import json
from collections.abc import Mapping

_LONGEST = 300


def printable(text: str) -> str:
    """Return `text` with unprintable characters escaped, cut after 300 characters."""
    head = text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in head)


def detail_of(refusal: bytes, otherwise: str) -> str:
    """Return the detail of a server's refusal in JSON, or `otherwise` if it has none, as `printable`."""
    try:
        return printable(str(json.loads(refusal)["detail"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return printable(otherwise)


def labels_text(labels: Mapping[str, str]) -> str:
    """Return labels as NAME=VALUE texts, in order."""
    return " ".join(f"{name}={value}" for name, value in sorted(labels.items()))
