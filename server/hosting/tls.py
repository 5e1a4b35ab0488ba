"""The server's side of devices' connections: TLS and its key, and the authority for devices' certificates."""

import ssl
from pathlib import Path

from edgeflock.server.connections.reverse_proxy import ReverseProxy
from edgeflock.server.identity import Authority, demand, key_files, share, tls_of
from edgeflock.server.ledger import is_shared
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.identity import is_loopback
from edgeflock.shared.settings.config import Config


def server_context(
    config: Config, directory: Path, proxy: ReverseProxy | None = None
) -> tuple[ssl.SSLContext | None, bytes]:
    """Return (TLS to listen with, pin of the public key that devices see). Raises ConfigError.

    If there is a `proxy`, its TLS and its key are what devices see.
    """
    server = config.server
    plain = server.insecure or is_loopback(server.host)
    if is_shared(config.journal.url) and proxy is None:
        directory.mkdir(0o700, parents=True, exist_ok=True)
        for own in key_files(directory):
            share(config.journal.url, own)
    if server.open and not plain:
        raise ConfigError(
            f"server.open = true lets in everybody who reaches server.host = {server.host!r}: leave it out, "
            "listen on 127.0.0.1, or allow it with server.insecure = true"
        )
    if proxy is not None:
        return None, bytes.fromhex(proxy.pin)
    return tls_of(server, directory)


def authority_of(
    config: Config, directory: Path, tls: ssl.SSLContext | None, proxy: ReverseProxy | None = None
) -> Authority | None:
    """Return the devices' authority. `tls` asks for certificates if configured. Raises ConfigError.

    If there is a `proxy`, its TLS asks for them.
    """
    demanded = config.server.client_certificates
    if proxy is not None and proxy.secure:
        return Authority(directory)
    if tls is None:
        if demanded:
            raise ConfigError(
                f"server.client_certificates = {demanded!r} needs TLS, and the server speaks plain HTTP: "
                "leave server.insecure out and listen beyond this machine, or set server.certificate and "
                "server.key"
            )
        return None
    authority = Authority(directory)
    if demanded:
        demand(tls, authority.pem, required=demanded == "everybody")
    return authority
