"""Where a device's servers are, as client.server says it."""

from yarl import URL

from edgeflock.shared.errors import ConfigError


def urls_of(servers: str) -> list[URL]:
    """Of one server, or of several with commas between them, all of one scheme. Raises ConfigError."""
    urls = [url_of(server.strip()) for server in servers.split(",")]
    if len({url.scheme for url in urls}) > 1:
        raise ConfigError(f"client.server {servers!r} must be all https:// or all http://")
    return urls


def url_of(server: str) -> URL:
    """Raises ConfigError if it is no server's URL."""
    try:
        url = URL(server)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"client.server {server!r} must be a URL such as https://192.0.2.1:8470")
    return url
