"""Parses an owner's limits: 25% of a core, 50kB/s. No I/O."""

import math
import re

from edgeflock.shared.errors import ConfigError

_RATE = re.compile(r"(\d+(?:\.\d+)?) ?(kB|MB)/s")
_UNITS = {"kB": 1e3, "MB": 1e6}

_MIN_SHARE, _MIN_RATE = 0.01, 1e3


def share_of(text: str) -> float | None:
    """Return 0.25 for "25%", 1.5 for "150%", and None (no limit) for "". Raises ConfigError."""
    if not text:
        return None
    number = text.removesuffix("%")
    share = float(number) / 100 if _is_number(number) else 0.0
    if not text.endswith("%") or share < _MIN_SHARE:
        raise ConfigError(
            f"client.cpu = {text!r} must be a percentage of one core, of 1% or more, such as 25% or 150%"
        )
    return share


def rate_of(text: str) -> float | None:
    """Return bytes per second: 50,000 for "50kB/s", None (no limit) for "". Raises ConfigError."""
    if not text:
        return None
    found = _RATE.fullmatch(text)
    rate = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if rate < _MIN_RATE:
        raise ConfigError(
            f"client.bandwidth = {text!r} must be 1kB/s or more, both ways together, such as 50kB/s or 2MB/s"
        )
    return rate


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
