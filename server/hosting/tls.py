"""The server's side of devices' connections: TLS and its key, and the authority for devices' certificates."""

import ssl
from pathlib import Path

from edgeflock.server.identity import (
    Authority,
    Certificate,
    demand,
    key_files,
    own_certificate,
    pin_of_file,
    server_tls,
    share,
)
from edgeflock.server.ledger import is_shared
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.identity import is_loopback
from edgeflock.shared.settings.config import Config


def server_context(config: Config, directory: Path) -> tuple[ssl.SSLContext | None, bytes]:
    """Return (TLS to listen with, pin of the public key that devices see). Raises ConfigError."""
    run = config.run
    plain = run.insecure or is_loopback(run.host)
    if is_shared(config.journal.url):
        directory.mkdir(0o700, parents=True, exist_ok=True)
        for own in key_files(directory):
            share(config.journal.url, own)
    if run.open and not plain:
        raise ConfigError(
            f"run.open = true lets in everybody who reaches run.host = {run.host!r}: leave it out, listen on "
            "127.0.0.1, or allow it with run.insecure = true"
        )
    if run.key and not run.certificate:
        raise ConfigError("run.key is set without run.certificate: set both or neither")
    if run.key:
        return server_tls(Certificate(Path(run.certificate), Path(run.key)))
    if run.certificate:
        if not plain:
            raise ConfigError(
                "run.certificate without run.key is that of a proxy, to which the server speaks plain HTTP: "
                "set run.host = 127.0.0.1 or run.insecure = true, or set run.key"
            )
        return None, pin_of_file(Path(run.certificate))
    return (None, b"") if plain else server_tls(own_certificate(directory, run.host))


def authority_of(config: Config, directory: Path, tls: ssl.SSLContext | None) -> Authority | None:
    """Return the devices' authority. `tls` asks for certificates if configured. Raises ConfigError."""
    demanded = config.run.client_certificates
    if tls is None:
        if demanded:
            raise ConfigError(
                f"run.client_certificates = {demanded!r} needs TLS, and the server speaks plain HTTP: leave "
                "run.insecure out and listen beyond this machine, or set run.certificate and run.key"
            )
        return None
    authority = Authority(directory)
    if demanded:
        demand(tls, authority.pem, required=demanded == "everybody")
    return authority
