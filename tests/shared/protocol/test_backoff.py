"""How long to wait before trying again, and when it is no use."""

import socket
import ssl
from datetime import timedelta
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from aiohttp import ClientConnectorError, ClientResponseError
from aiohttp.client_reqrep import ConnectionKey

from edgeflock.shared.protocol.backoff import RepeatedReasons, back_off, failure_reason, permanent_error
from tests.certificates import certificate, serving_with


@pytest.mark.parametrize(
    ("first", "longest", "bounds"),
    [
        (0.5, 30.0, [0.5, 1, 2, 4, 8, 16, 30, 30, 30]),
        (1.0, 4.0, [1, 2, 4, 4, 4]),
        (2.0, 3.0, [2, 3, 3]),
    ],
)
def test_waits_double_up_to_the_longest_with_full_jitter(
    first: float, longest: float, bounds: list[float]
) -> None:
    """Each wait is uniform between zero and its bound: over many devices it fills that range."""
    waits = [list(islice(back_off(Random(seed), first, longest), len(bounds))) for seed in range(400)]
    for place, bound in enumerate(bounds):
        drawn = sorted(wait[place] for wait in waits)
        assert 0 <= drawn[0] < 0.05 * bound
        assert 0.95 * bound < drawn[-1] <= bound
        assert abs(drawn[200] - bound / 2) < 0.1 * bound


def test_the_defaults_are_half_a_second_to_half_a_minute() -> None:
    waits = [list(islice(back_off(Random(seed)), 12)) for seed in range(100)]
    assert max(wait[0] for wait in waits) <= 0.5
    assert 15 < max(max(wait) for wait in waits) <= 30


def test_the_same_randomness_gives_the_same_waits() -> None:
    assert list(islice(back_off(Random(7)), 50)) == list(islice(back_off(Random(7)), 50))
    assert list(islice(back_off(Random(7)), 50)) != list(islice(back_off(Random(8)), 50))


# What is said meanwhile


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ConnectionRefusedError(),
            "nothing listens at URL: start the server, or correct the address",
        ),
        (
            socket.gaierror(-2, "Name or service not known"),
            "no machine has the name in URL (Name or service not known): correct it, or write the IP address",
        ),
        (TimeoutError(), "no answer in time from URL: check that the server runs, and the address"),
        (
            ConnectionResetError(104, "Connection reset by peer"),
            "no answer from URL: Connection reset by peer",
        ),
        (
            ClientResponseError(cast(Any, None), (), status=502),
            "URL answers 502: the server, or a proxy in front of it, cannot serve now",
        ),
        (EOFError(), "no answer from URL: EOFError"),
    ],
)
def test_a_failure_is_told_in_plain_words(error: Exception, said: str) -> None:
    assert failure_reason("URL", error) == said
    key = ConnectionKey("127.0.0.1", 1, False, True, None, None, None)
    if isinstance(error, OSError):
        assert failure_reason("URL", ClientConnectorError(key, error)) == said


def test_a_reason_is_logged_once_a_minute() -> None:
    reasons = RepeatedReasons()
    assert [reasons.is_due("away", 25.0) for _ in range(7)] == [True, False, False, True, False, False, True]
    assert [reasons.is_due(one, 1.0) for one in ("full", "away", "full")] == [True, False, False]


# When it is no use


def distrusted(shown: Path, trusted: Path, host: str) -> ssl.SSLCertVerificationError:
    """What comes of a handshake in memory with `host`, which shows a certificate; another one is trusted."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving_with(shown).wrap_bio(to_server, to_client, server_side=True)
    client = ssl.create_default_context(cafile=str(trusted)).wrap_bio(
        to_client, to_server, server_hostname=host
    )
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error
    pytest.fail("the certificate is trusted")


YEAR = timedelta(days=365)


@pytest.mark.parametrize(
    ("begins", "ends", "host", "words"),
    [
        (-YEAR, YEAR, "127.0.0.2", "use a name that it is valid for"),
        (-YEAR, YEAR, "server.example", "use a name that it is valid for"),
        (-2 * YEAR, -YEAR, "127.0.0.1", "renew it, if this machine's clock is right"),
        (YEAR, 2 * YEAR, "127.0.0.1", None),
    ],
)
def test_what_is_wrong_with_a_certificate(
    begins: timedelta, ends: timedelta, host: str, words: str | None, tmp_path: Path
) -> None:
    """One that is not yet valid will be: the clock of a board without a battery is late until it is set."""
    path = certificate(tmp_path / "pem", begins=begins, ends=ends)
    error = distrusted(path, path, host)
    reported = permanent_error("https://server", error)
    assert (reported is None) == (words is None)
    if words is not None:
        assert str(reported).startswith(
            "https://server shows a certificate that this machine does not trust ("
        )
        assert str(reported).endswith(words)


def test_an_unknown_authority_is_told_however_it_is_wrapped(tmp_path: Path) -> None:
    error = distrusted(certificate(tmp_path / "one"), certificate(tmp_path / "other"), "127.0.0.1")
    wrapped = OSError("cannot connect")
    wrapped.__cause__ = error
    assert "SSL_CERT_FILE" in str(permanent_error("https://server", wrapped))


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "connection refused"),
        ConnectionResetError(104, "connection reset by peer"),
        TimeoutError(),
        socket.gaierror(-3, "temporary failure in name resolution"),
        socket.gaierror(-2, "name or service not known"),
        OSError(101, "network is unreachable"),
        ssl.SSLEOFError(8, "EOF occurred in violation of protocol"),
    ],
)
def test_what_passes_by_itself(error: Exception) -> None:
    assert permanent_error("https://server", error) is None
