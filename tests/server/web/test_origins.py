"""Which pages are the server's own: a table of origins, and of names that they and the request go by."""

import pytest

from edgeflock.server.web import Origins

ORIGINS = Origins(frozenset({"https://flock.example.org"}), frozenset({"localhost", "vm", "vm.local"}))


@pytest.mark.parametrize(
    ("origin", "scheme", "host"),
    [
        ("http://127.0.0.1:8470", "http", "127.0.0.1:8470"),
        ("http://192.0.2.7:8470", "http", "192.0.2.7:8470"),
        ("http://[::1]:8470", "http", "[::1]:8470"),
        ("http://localhost:8470", "http", "localhost:8470"),
        ("http://LOCALHOST:8470", "http", "localhost:8470"),
        ("http://run.localhost", "http", "run.localhost"),
        ("http://vm:8470", "http", "VM:8470"),
        ("http://vm.local", "http", "vm.local"),
        # The certificate says who it is.
        ("https://anything.example:8470", "https", "anything.example:8470"),
        # Named by the operator, whatever the proxy makes of the request.
        ("https://flock.example.org", "http", "127.0.0.1:8470"),
        ("https://Flock.Example.org", "http", "flock.example.org"),
    ],
)
def test_the_servers_own_pages(origin: str, scheme: str, host: str) -> None:
    assert ORIGINS.accepts(origin, scheme, host)


@pytest.mark.parametrize(
    ("origin", "scheme", "host"),
    [
        ("http://elsewhere.example", "http", "127.0.0.1:8470"),
        ("null", "http", "127.0.0.1:8470"),
        ("", "http", "127.0.0.1:8470"),
        ("http://127.0.0.1:8471", "http", "127.0.0.1:8470"),
        ("http://127.0.0.1", "http", "127.0.0.1:8470"),
        # Another page of the same machine's, over the line that others can write on.
        ("http://vm:8470", "https", "vm:8470"),
        ("https://vm:8470", "http", "vm:8470"),
        # A name that its owner now has point here.
        ("http://elsewhere.example:8470", "http", "elsewhere.example:8470"),
        ("http://localhost.elsewhere.example", "http", "localhost.elsewhere.example"),
        ("http://127.0.0.1.elsewhere.example", "http", "127.0.0.1.elsewhere.example"),
        ("http://localhost.", "http", "localhost."),
        ("http://[::1", "http", "[::1"),
        ("http://", "http", ""),
        ("https://flock.example.org:444", "http", "flock.example.org:444"),
        ("http://flock.example.org.", "http", "flock.example.org."),
    ],
)
def test_pages_of_others(origin: str, scheme: str, host: str) -> None:
    assert not ORIGINS.accepts(origin, scheme, host)


def test_names_that_only_this_machine_can_have() -> None:
    assert [
        host for host in ("vm", "10.0.0.1", "localhost:1", "flock.example.org") if ORIGINS.is_own(host)
    ] == [
        "vm",
        "10.0.0.1",
        "localhost:1",
        "flock.example.org",
    ]
    assert not any(ORIGINS.is_own(host) for host in ("elsewhere.example", "", "[", "vm.example"))
    assert Origins.from_names([], "Server.Example").is_own("server.example:80")
