"""Checks of files: present, intact, and readable by their owner only."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

from edgeflock.doctor.finding import CheckResult, bad, ok, warn

PUBLIC = ("certificate.pem",)
"""Files in a run's directory that everybody may read."""

SOON = timedelta(days=30)


def secret(path: Path) -> CheckResult:
    """Check a file with a key or a credential."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        return bad("modes", f"{path}: {error.strerror}", "edgeflock client join URL TOKEN makes it")
    if mode & 0o077:
        return bad("modes", f"{path} can be read by others (mode {mode:o})", f"chmod 600 {path}")
    return ok("modes", f"{path} is its owner's alone")


def directory(path: Path) -> CheckResult:
    """Check a run's directory, with its keys, tokens and journal."""
    if not path.exists():
        return ok("modes", f"{path} is not there yet; the server makes it")
    if not stat.S_IMODE(path.stat().st_mode) & 0o077:
        return ok("modes", f"{path} is its owner's alone")
    exposed = [
        one.name
        for one in sorted(path.iterdir())
        if one.is_file() and one.name not in PUBLIC and stat.S_IMODE(one.stat().st_mode) & 0o077
    ]
    if exposed:
        names = ", ".join(exposed[:5])
        return bad("modes", f"{path}: others can read {names}", f"chmod -R go= {path}")
    return ok("modes", f"{path}: its files are their owner's alone")


def certificate(path: Path, now: datetime | None = None) -> CheckResult:
    """Check a server's certificate in PEM."""
    from cryptography import x509

    now = now or datetime.now(UTC)
    try:
        until = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except (OSError, ValueError) as error:
        return bad("TLS", f"{path} is no certificate in PEM: {error}", "server.certificate names one")
    said = f"{path} holds until {until:%Y-%m-%d}"
    renew = "renew it with the same key, which devices' tokens name"
    if until <= now:
        return bad("TLS", f"{path} has held until {until:%Y-%m-%d}", renew)
    return warn("TLS", said, renew) if until < now + SOON else ok("TLS", said)
