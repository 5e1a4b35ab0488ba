"""Readable numbers for narrow columns."""

import math

NOTHING = "·"
"""The text of an unknown value."""


def count(value: float | None) -> str:
    """Return a whole number: 7,214, and 1.25M from a million on."""
    if value is None:
        return NOTHING
    if value < 1_000_000:
        return f"{value:,.0f}"
    return _scaled(value, "")


def size(octets: float | None) -> str:
    """Bytes in decimal units: 900 B, 12.3 kB, 1.21 GB."""
    if octets is None:
        return NOTHING
    return f"{octets:.0f} B" if octets < 999.5 else f"{_scaled(octets, ' ')}B"


def memory(used: float | None, total: float | None) -> str:
    """Return used and total MiB: 212/460M, 0.6/3.7G, or 212M if the total is unknown."""
    if used is None:
        return NOTHING if total is None else f"{NOTHING}/{_mebibytes(total, total)}"
    return f"{used:.0f}M" if total is None else f"{_mebibytes(used, total)[:-1]}/{_mebibytes(total, total)}"


def _mebibytes(value: float, largest: float) -> str:
    if largest < 1000:
        return f"{value:.0f}M"
    value /= 1024
    return f"{value:.1f}G" if value < 9.95 else f"{value:.0f}G"


def rate(value: float | None) -> str:
    """Return a rate per second: 0.42, 12.5, 214."""
    if value is None:
        return NOTHING
    return (
        f"{value:.0f}" if value >= 99.5 or value == 0 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    )


def decimal(value: float | None) -> str:
    """A loss: 0.084, 12.3, 4.1e+06. What is below 10 has three digits after the point."""
    if value is None:
        return NOTHING
    if abs(value) >= 10_000:
        return f"{value:.1e}"
    whole = max(0, int(math.log10(abs(value)))) if abs(value) >= 1 else 0
    return f"{value:.{max(0, 3 - whole)}f}"


def percent(fraction: float | None, digits: int = 1) -> str:
    return NOTHING if fraction is None else f"{fraction * 100:.{digits}f}%"


def reduction(value: float | None) -> str:
    """Return a reduction factor: 9.8x, 232x, 15,723x."""
    return NOTHING if value is None else f"{value:.1f}x" if value < 100 else f"{value:,.0f}x"


def age(seconds: float | None) -> str:
    """Return an age in at most four characters: 0s, 59s, 4m, 3h, 12d."""
    if seconds is None:
        return NOTHING
    seconds = max(0.0, seconds)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length * (1 if unit != "m" else 1.5):
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"


def duration(seconds: float) -> str:
    """Return a duration: 0:41, 12:05, 3:07:00."""
    whole = max(0, int(seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def span(seconds: float) -> str:
    """Return a duration on an axis: 30s, 5m, 1.5h, 2d."""
    for unit, length in (("d", 172800), ("h", 5400), ("m", 100)):
        if seconds >= length:
            return f"{seconds / {'d': 86400, 'h': 3600, 'm': 60}[unit]:.3g}{unit}"
    return f"{seconds:.3g}s"


def short(value: float) -> str:
    """A number on an axis: 0, 250, 12k, 1.5M."""
    return f"{value:.3g}" if abs(value) < 999.5 else _scaled(value, "").removesuffix(".0")


def short_times(value: float) -> str:
    """Return a reduction factor on an axis: 7.5x, 1,000x."""
    return f"{value:.3g}x" if value < 999.5 else f"{value:,.0f}x"


def short_size(octets: float) -> str:
    """Bytes on an axis: 250B, 12kB, 1.5MB."""
    return f"{octets:.3g}B" if octets < 999.5 else f"{_scaled(octets, '')}B"


def plain(text: str) -> str:
    """Return untrusted text without control characters."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _scaled(value: float, gap: str) -> str:
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 999.5 or unit == "T":
            break
        value /= 1000
    return f"{value:.3g}{gap}{unit}" if abs(value) < 999.5 else f"{value:.0f}{gap}{unit}"
