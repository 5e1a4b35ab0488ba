"""The register in the database that servers share: what one writes the other knows."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from edgeflock.server.database import URL_FILE
from edgeflock.server.identity import (
    Certificate,
    Logins,
    Register,
    own_certificate,
    pin_of_file,
    share,
)
from edgeflock.shared.errors import JournalDamaged, Unauthorized
from edgeflock.shared.identity import NO_PIN, join_message, new_key, public_of, sign
from tests.postgres import Cluster


@pytest.fixture
def both(postgres: Cluster, tmp_path: Path) -> Iterator[tuple[Register, Register]]:
    """Those of two servers."""
    url = postgres.fresh()
    with ExitStack() as opened:
        found = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            (tmp_path / name / URL_FILE).write_text(url)
            found.append(opened.enter_context(closing(Register(tmp_path / name))))
        yield found[0], found[1]


def enrol(register: Register, name: str) -> str:
    """The credential of a device that has joined there."""
    token, key = register.create("device").text, new_key()
    proof = sign(key, join_message(token, NO_PIN, public_of(key), name))
    return register.join(token, name, public_of(key), proof, b"", b"", 10).credential


def test_a_device_that_joined_one_is_known_to_the_other(both: tuple[Register, Register]) -> None:
    one, two = both
    assert one.realm == two.realm, "what devices sign is of both"
    caller = one.identify(one.create("viewer").text)
    number = Logins(one).begin(caller)
    assert Logins(two).identify(number) == caller, "a browser need not log in again"
    Logins(two).end(number)
    one.refresh()
    with pytest.raises(Unauthorized, match="the login has ended"):
        Logins(one).identify(number)
    credential = enrol(one, "device")
    assert two.identify(credential).name == "device"
    two.label("device", {"site": "north"})
    two.quarantine("device", "it sends nonsense")
    two.store_address("https://192.0.2.1", b"pin")
    one.refresh()
    assert one.devices["device"].labels == {"site": "north"}
    assert one.find_quarantine("device") is not None
    assert (one.url, one.pin) == ("https://192.0.2.1", b"pin")
    one.release("device")
    two.refresh()
    assert two.find_quarantine("device") is None
    two.revoke("device")
    one.refresh()
    with pytest.raises(Unauthorized, match="was revoked"):
        one.identify(credential)


def test_what_others_write_is_noticed_once(both: tuple[Register, Register]) -> None:
    one, two = both
    one.refresh()
    seen = one.changes
    one.create("viewer")
    one.refresh()
    assert one.changes == seen, "its own is known"
    token = two.create("viewer")
    one.refresh()
    assert one.changes == seen + 1
    assert one.identify(token.text).role == "viewer"


def test_what_fails_leaves_nothing(both: tuple[Register, Register]) -> None:
    one, two = both

    def spoil() -> None:
        with one.transaction():
            one.remove("meta", "realm")
            one.db.write("INSERT INTO nowhere VALUES (1)")

    with pytest.raises(JournalDamaged):
        spoil()
    two.refresh()
    assert two.realm == one.realm != b""


def test_servers_show_the_same_key(postgres: Cluster, tmp_path: Path) -> None:
    url, pins = postgres.fresh(), []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        if name == "two":
            own_certificate(folder, "192.0.2.1")  # of a key of its own, until it learns better
        share(url, Certificate(folder / "certificate.pem", folder / "certificate-key.pem"))
        pins.append(pin_of_file(own_certificate(folder, "192.0.2.1").certificate))
    assert pins[0] == pins[1]
