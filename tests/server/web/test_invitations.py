"""What an operator is told of the address that an invitation has."""

from pathlib import Path

import pytest

from edgeflock.server.identity import own_certificate, own_fingerprint, pin_of_file
from edgeflock.server.web import hindrance


@pytest.mark.parametrize(
    ("address", "fingerprint", "said"),
    [
        ("https://flock.example.org/train#token=ef1.a.", "", ""),
        ("https://10.0.0.5:8470/train", "AB:CD", "continue under Advanced if its SHA-256 is AB:CD"),
        ("http://10.0.0.5:8470/train", "", "plain http://; for an address"),
        ("http://127.0.0.1:8470/train", "", "--url https://HOST"),
        ("https://localhost:8470/train", "AB:CD", "the server's own machine"),
    ],
)
def test_each_address_has_its_hindrance(address: str, fingerprint: str, said: str) -> None:
    reported = hindrance(address, fingerprint)
    assert said in reported
    assert bool(reported) is bool(said)


def test_the_fingerprint_is_that_of_the_servers_own_certificate_alone(tmp_path: Path) -> None:
    assert own_fingerprint(tmp_path, b"p" * 32) == "", "it has made none"
    own = own_certificate(tmp_path, "127.0.0.1")
    shown = own_fingerprint(tmp_path, pin_of_file(own.certificate))
    assert len(shown.split(":")) == 32
    assert own_fingerprint(tmp_path, b"p" * 32) == "", "it uses another"
    assert own_fingerprint(tmp_path, b"") == "", "it speaks plain HTTP"
