"""The server's own certificate, and TLS that takes no other."""

import socket
import ssl
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from edgeflock.server.identity import Authority, certificate, own_certificate, server_tls
from edgeflock.shared.errors import ConfigError, WrongKey
from edgeflock.shared.identity import is_loopback, new_key, public_of, tls_for


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> bytes:
    """What of the client's words reaches the server."""
    here, there = socket.socketpair()
    heard = []

    def serve() -> None:
        try:
            with server.wrap_socket(there, server_side=True) as line:
                heard.append(line.recv(100))
        except OSError:
            pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = client.wrap_bio(incoming, outgoing, server_hostname="pi.example")
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                here.sendall(outgoing.read())
                incoming.write(here.recv(1 << 16))
        tls.write(b"secret")
        here.sendall(outgoing.read())
        return b"secret"
    finally:
        here.close()
        thread.join()
        there.close()
        assert heard in ([], [b"secret"])


def test_a_client_with_the_pin_takes_this_key_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    tls, pin = server_tls(own_certificate(tmp_path, "0.0.0.0"))
    other, other_pin = server_tls(own_certificate(tmp_path / "other", ""))
    assert pin != other_pin
    client = tls_for("https", "pi.example", pin, insecure=False)
    assert isinstance(client, ssl.SSLContext)
    assert handshake(tls, client) == b"secret"
    with pytest.raises(WrongKey, match="nothing was sent"):
        handshake(other, client)


def test_it_is_made_once_and_its_key_is_for_its_owner_only(tmp_path: Path) -> None:
    own = own_certificate(tmp_path, "192.0.2.1")
    octets = own.certificate.read_bytes()
    assert own_certificate(tmp_path, "192.0.2.1").certificate.read_bytes() == octets
    assert stat.S_IMODE(own.key.stat().st_mode) == 0o600
    ssl.create_default_context(cafile=own.certificate)  # it is its own authority


def test_an_old_certificate_is_made_anew_and_keeps_its_pin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Earlier(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) - timedelta(days=3600)

    monkeypatch.setattr(certificate, "datetime", Earlier)
    own = own_certificate(tmp_path, "")
    old, (_, pin) = own.certificate.read_bytes(), server_tls(own)
    monkeypatch.undo()
    assert own_certificate(tmp_path, "").certificate.read_bytes() != old
    assert server_tls(own)[1] == pin


def test_files_that_are_no_certificate_are_told(tmp_path: Path) -> None:
    own = own_certificate(tmp_path, "")
    own.certificate.write_text("nothing")
    with pytest.raises(ConfigError, match=r"the certificate .* and the key .* cannot be used"):
        server_tls(own)


def test_without_tls_only_this_machine_is_spoken_to_unless_asked_for() -> None:
    for host in ("127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]"):
        assert is_loopback(host)
        tls_for("http", host, b"", insecure=False)
    for host in ("192.0.2.1", "pi.example", "0.0.0.0", "localhost.example"):
        assert not is_loopback(host)
        tls_for("http", host, b"", insecure=True)
        with pytest.raises(ConfigError, match="--insecure"):
            tls_for("http", host, b"", insecure=False)
    with pytest.raises(ConfigError, match="write https://"):
        tls_for("http", "127.0.0.1", bytes(32), insecure=True)


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_no_bytes_of_a_gateway_do_worse_than_be_no_certificate(tmp_path: Path) -> None:
    """A version that there is not is no ValueError."""
    authority, public, random = Authority(tmp_path), public_of(new_key()), Random(0)
    good = ssl.PEM_cert_to_DER_cert(authority.certificate(public))
    assert authority.verified_key(good) == public
    assert authority.verified_key(b"") is None
    for at in range(len(good)):
        damaged = bytearray(good)
        damaged[at] ^= random.randrange(1, 256)
        assert authority.verified_key(bytes(damaged)) == b""
