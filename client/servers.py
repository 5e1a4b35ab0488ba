"""Parses the servers' URLs in client.server."""

from yarl import URL

from edgeflock.shared.errors import ConfigError


def urls_of(servers: str) -> list[URL]:
    """Parse one URL, or several separated by commas, all of one scheme. Raises ConfigError."""
    urls = [url_of(server.strip()) for server in servers.split(",")]
    if len({url.scheme for url in urls}) > 1:
        raise ConfigError(f"client.server {servers!r} must be all https:// or all http://")
    return urls


def url_of(server: str) -> URL:
    """Parse one URL. Raises ConfigError if it is not a server's URL."""
    try:
        url = URL(server)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"client.server {server!r} must be a URL such as https://192.0.2.1:8470")
    return url
