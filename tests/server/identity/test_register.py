"""The register: who is let in with what, and what of it is on the disk."""

import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from edgeflock.server.identity import IDENTITIES, JoinResult, Register, Role
from edgeflock.server.identity.quarantine import FIRST_SECONDS, LONGEST_SECONDS, RESET_SECONDS
from edgeflock.server.identity.records import StoredOrder
from edgeflock.shared.errors import ConfigError, NameInUse, Quarantined, TooManyDevices, Unauthorized
from edgeflock.shared.identity import (
    NO_PIN,
    Token,
    digest_of,
    join_message,
    new_key,
    public_of,
    session_message,
    sign,
)

PIN = b"p" * 32


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Key:
    """A device's side of it."""

    name: str
    key: bytes

    def join(
        self, register: Register, bearer: str, *, limit: int = 9, old: bytes = b"", pin: bytes = PIN
    ) -> JoinResult:
        words = join_message(bearer, pin, public_of(self.key), self.name)
        before = sign(old, words) if old else b""
        return register.join(
            bearer, self.name, public_of(self.key), sign(self.key, words), PIN, before, limit
        )

    def speak(self, register: Register, credential: str, *, name: str = "", pin: bytes = PIN) -> None:
        name = name or self.name
        proof = sign(self.key, session_message(b"c" * 32, register.realm, pin, name))
        register.check(register.identify(credential), name, b"c" * 32, PIN, proof)


def device(name: str = "pi") -> Key:
    return Key(name, new_key())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def register(tmp_path: Path, clock: Clock) -> Register:
    return Register(tmp_path, clock)


def test_a_device_joins_and_speaks(register: Register, tmp_path: Path) -> None:
    pi = device()
    joined = pi.join(register, register.create("device", labels={"site": "roof"}).text)
    pi.speak(register, joined.credential)
    assert register.devices["pi"].labels == {"site": "roof"}
    pi.speak(Register(tmp_path), joined.credential)  # as after a restart


def test_a_change_copies_no_table_and_memory_is_what_is_stored(register: Register, tmp_path: Path) -> None:
    tables = ("meta", "tokens", "devices", "revoked", "orders", "quarantines", "logins", "credentials")
    before = [getattr(register, table) for table in tables]

    def check() -> None:
        with closing(Register(tmp_path)) as stored:
            for table in tables:
                assert getattr(register, table) == getattr(stored, table)

    first, second = device(), device()
    joined = first.join(register, register.create("device").text)
    check()
    register.rotate("pi")
    check()
    fresh = Key("pi", new_key())
    renewed = fresh.join(register, joined.credential, old=first.key)
    check()
    fresh.speak(register, renewed.credential)
    check()
    assert list(register.credentials) == [digest_of(renewed.credential)]
    register.quarantine("pi", "hot")
    register.order("pi", StoredOrder(dropped=False, reason="hot"))
    check()
    register.release("pi")
    register.order("pi", None)
    register.revoke("pi")
    second.join(register, register.create("device").text)
    check()
    with pytest.raises(sqlite3.Error), register.transaction():
        register.put("devices", "pi", replace(register.devices["pi"], digest=object()))  # type: ignore[arg-type]
    check()
    assert all(getattr(register, table) is old for table, old in zip(tables, before, strict=True))


def test_no_secret_is_on_the_disk(register: Register, tmp_path: Path) -> None:
    token = register.create("device")
    pi = device()
    joined = pi.join(register, token.text)
    register.close()
    octets = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for secret in (token.text, joined.credential):
        assert digest_of(secret) in octets
        assert secret.split(".")[1].encode() not in octets
    assert token.secret not in octets
    assert pi.key not in octets
    assert stat.S_IMODE((tmp_path / IDENTITIES).stat().st_mode) == 0o600


@pytest.mark.parametrize("role", ["viewer", "admin"])
def test_operators_are_known_by_their_token(role: Role, register: Register, clock: Clock) -> None:
    token = register.create(role, seconds=60)
    assert register.identify(token.text).role == role
    with pytest.raises(Unauthorized, match=f"the role {role} lets no device join"):
        device().join(register, token.text)
    clock.now += 60
    with pytest.raises(Unauthorized, match=f"has expired; create another: .* --role {role}$"):
        register.identify(token.text)
    register.create("device")  # those that have expired are forgotten
    with pytest.raises(Unauthorized, match="does not know"):
        register.identify(token.text)


def test_who_comes_with_a_devices_token_may_join_only(register: Register) -> None:
    assert register.identify(register.create("device").text).role == "joining"


@pytest.mark.parametrize("bearer", ["", "ef1.x.", Token(bytes(24)).text, "efd1.AAAA", "\udcff"])
def test_strangers_are_nobody(bearer: str, register: Register) -> None:
    with pytest.raises(Unauthorized):
        register.identify(bearer)


def test_a_token_for_one_device_is_for_one(register: Register) -> None:
    token, pi = register.create("device").text, device()
    pi.join(register, token)
    with pytest.raises(Unauthorized, match="was for one device.*edgeflock token create"):
        device("jetson").join(register, token)
    again = pi.join(register, token)  # whose answer was lost on the way may ask again
    pi.speak(register, again.credential)
    assert set(register.devices) == {"pi"}


def test_a_reusable_token_is_for_many(register: Register) -> None:
    token = register.create("device", reusable=True).text
    for name in "abc":
        device(name).join(register, token)
    with pytest.raises(TooManyDevices, match=r"limits\.devices"):
        device("d").join(register, token, limit=3)
    assert set(register.devices) == set("abc")


def test_an_expired_token_lets_nobody_join(register: Register, clock: Clock) -> None:
    token = register.create("device", seconds=10).text
    clock.now += 10
    with pytest.raises(Unauthorized, match="expired"):
        device().join(register, token)


def test_two_devices_of_one_name_are_told_so(register: Register) -> None:
    token = register.create("device", reusable=True).text
    joined = (first := device()).join(register, token)
    with pytest.raises(NameInUse, match="give each its own --name"):
        device().join(register, token)
    first.speak(register, joined.credential)


def test_nobody_speaks_under_anothers_name_or_key(register: Register) -> None:
    token = register.create("device", reusable=True).text
    pi, jetson = device("pi"), device("jetson")
    credential, other = pi.join(register, token).credential, jetson.join(register, token).credential
    with pytest.raises(Unauthorized, match="not of 'jetson'"):
        pi.speak(register, credential, name="jetson")
    thief = Key("pi", jetson.key)  # who has stolen the credential has not stolen the key
    with pytest.raises(Unauthorized, match="does not fit"):
        thief.speak(register, credential)
    with pytest.raises(Unauthorized):
        pi.speak(register, other)
    with pytest.raises(Unauthorized):
        thief.join(register, credential, old=jetson.key)


def test_a_proof_made_for_another_server_is_none(register: Register) -> None:
    """As whoever stands between, with a key of his own, would get it."""
    token, pi = register.create("device").text, device()
    with pytest.raises(Unauthorized, match="does not fit"):
        pi.join(register, token, pin=b"q" * 32)
    credential = pi.join(register, token).credential
    for pin in (b"q" * 32, NO_PIN):
        with pytest.raises(Unauthorized, match="does not fit"):
            pi.speak(register, credential, pin=pin)
    proof = sign(pi.key, session_message(b"d" * 32, register.realm, PIN, "pi"))
    with pytest.raises(Unauthorized, match="does not fit"):
        register.check(register.identify(credential), "pi", b"c" * 32, PIN, proof)


def test_revoking_holds_at_once_and_for_good(register: Register, tmp_path: Path) -> None:
    token = register.create("device", reusable=True).text
    pi = device()
    credential = pi.join(register, token).credential
    caller = register.identify(credential)
    command = Register(tmp_path)  # another process
    command.revoke("pi")
    before = register.changes
    register.refresh()
    register.refresh()
    assert register.changes == before + 1
    for one in (register, Register(tmp_path)):
        with pytest.raises(Unauthorized, match="was revoked"):
            one.identify(credential)
        with pytest.raises(Unauthorized, match="was revoked"):
            one.check(caller, "pi", b"c" * 32, PIN, b"")
    with pytest.raises(Unauthorized, match="with a new key"):
        pi.join(register, token)
    device().join(register, token)  # the name may be had again, with another key
    with pytest.raises(Unauthorized):
        register.identify(credential)


def test_a_revoked_key_never_joins_again(register: Register, tmp_path: Path) -> None:
    """Under no name, with no token, as no device's next key; whoever has its name since."""
    token = register.create("device", reusable=True).text
    pi, jetson = device(), device("jetson")
    credential, other = pi.join(register, token).credential, jetson.join(register, token).credential
    fresh = device()
    fresh.join(register, credential, old=pi.key)  # its next key, which it never shows
    register.revoke("pi")
    device("nano").join(register, token)
    for again in range(2):
        for key in (pi.key, fresh.key):
            for one in (register, Register(tmp_path)):
                bearer = one.create("device").text
                for name in ("pi", "late"):
                    with pytest.raises(Unauthorized, match="this key was revoked, as that of 'pi'"):
                        Key(name, key).join(one, bearer)
            with pytest.raises(Unauthorized, match="this key was revoked"):
                Key("jetson", key).join(register, other, old=jetson.key)
        if not again:
            device().join(register, token)  # the name has another key
    assert register.devices.keys() == {"pi", "jetson", "nano"}


def test_two_names_have_two_keys(register: Register) -> None:
    """Else one whose key is revoked goes on under the other, which it took before."""
    token, pi, other = register.create("device", reusable=True).text, device(), device("other")
    pi.join(register, token)
    credential = other.join(register, token).credential
    with pytest.raises(Unauthorized, match="another device has this key"):
        Key("pi-2", pi.key).join(register, token)
    with pytest.raises(Unauthorized, match="another device has this key"):
        Key("other", pi.key).join(register, credential, old=other.key)
    pi.join(register, token)


def test_nobody_joins_with_a_key_that_nobody_owns(register: Register) -> None:
    token, identity = register.create("device").text, bytes([1]) + bytes(31)
    with pytest.raises(Unauthorized, match="of small order"):
        register.join(token, "pi", identity, identity + bytes(32), PIN, b"", 9)
    assert not register.devices


def test_no_name_reads_like_another_devices(register: Register) -> None:
    token = register.create("device", reusable=True).text
    device("pi").join(register, token)
    with pytest.raises(NameInUse, match=r"the name '.u0440.u0456' reads like 'pi'"):
        device("\u0440\u0456").join(register, token)
    other = device("\u043a\u0443\u0445\u043d\u044f")  # kitchen
    other.speak(register, other.join(register, token).credential)


def test_a_token_that_was_taken_back_this_moment_lets_nobody_join(register: Register, tmp_path: Path) -> None:
    token = register.create("device")
    command = Register(tmp_path)
    command.delete(command.tokens[token.digest].id)
    with pytest.raises(Unauthorized, match="does not know"):
        device().join(register, token.text)
    with pytest.raises(ConfigError, match="no token"):
        command.delete("nothing")


def test_a_token_that_another_process_has_just_made_is_known(register: Register, tmp_path: Path) -> None:
    device().join(register, Register(tmp_path).create("device").text)


def test_a_rotated_credential_has_its_day_until_the_next_one_is_used(register: Register) -> None:
    old = device()
    before = old.join(register, register.create("device").text).credential
    register.rotate("pi")
    rotating = register.devices["pi"]
    assert rotating.rotate
    new = device()
    lost = Key("pi", new.key).join(register, before, old=old.key).credential
    old.speak(register, before)  # the answer may be lost on its way
    after = Key("pi", new.key).join(register, before, old=old.key).credential
    with pytest.raises(Unauthorized):
        register.identify(lost)
    new.speak(register, after)
    assert register.devices["pi"].rotate != rotating.rotate
    with pytest.raises(Unauthorized):
        register.identify(before)
    with pytest.raises(Unauthorized):
        old.speak(register, after)
    new.speak(register, after)


def test_labels_are_set_and_taken_away(register: Register) -> None:
    device().join(register, register.create("device", labels={"a": "1"}).text)
    register.label("pi", {"b": "2"})
    register.label("pi", {"a": ""})
    assert register.devices["pi"].labels == {"b": "2"}


@pytest.mark.parametrize(
    "do", [Register.revoke, Register.rotate, lambda register, name: register.label(name, {})]
)
def test_devices_that_never_joined_are_told(do: Callable[[Register, str], None], register: Register) -> None:
    with pytest.raises(ConfigError, match="no device 'ghost' has joined"):
        do(register, "ghost")


def test_a_joining_that_fails_changes_nothing(register: Register, tmp_path: Path) -> None:
    token = register.create("device").text
    pi = device()
    with pytest.raises(Unauthorized):
        register.join(token, "pi", public_of(pi.key), b"", PIN, b"", 9)
    with closing(sqlite3.connect(tmp_path / IDENTITIES)) as db:
        assert db.execute("SELECT count(*) FROM devices").fetchone() == (0,)
    pi.join(register, token)


# Quarantine


def test_a_quarantine_ends_by_itself_and_grows(register: Register, clock: Clock, tmp_path: Path) -> None:
    pi = device()
    credential = pi.join(register, register.create("device").text).credential
    lasted = []
    for _ in range(9):
        lasted.append(register.quarantine("pi", "reasons").seconds)
        for one in (register, Register(tmp_path, clock)):  # as after a restart
            with pytest.raises(Quarantined, match=r"until 1970-01-01 .* UTC: reasons;.*device release pi"):
                pi.speak(one, credential)
        clock.now += lasted[-1] - 1
        with pytest.raises(Quarantined) as reported:
            pi.speak(register, credential)
        assert reported.value.seconds == 1
        clock.now += 1
        pi.speak(register, credential)
    assert lasted == [min(LONGEST_SECONDS, FIRST_SECONDS * 2**n) for n in range(9)]
    clock.now += RESET_SECONDS + 1
    assert register.quarantine("pi", "reasons").seconds == FIRST_SECONDS


def test_an_operator_ends_a_quarantine(register: Register, clock: Clock, tmp_path: Path) -> None:
    pi, jetson = device(), device("jetson")
    token = register.create("device", reusable=True).text
    credential, other = pi.join(register, token).credential, jetson.join(register, token).credential
    register.quarantine("pi", "reasons")
    jetson.speak(register, other)
    assert register.find_quarantine("jetson") is None
    command = Register(tmp_path, clock)  # another process
    assert not command.release("jetson")
    assert command.release("pi")
    register.refresh()
    pi.speak(register, credential)
    assert register.quarantine("pi", "reasons").seconds == FIRST_SECONDS, "it is forgotten"
    clock.now += FIRST_SECONDS + 1
    assert not command.release("pi")
    register.refresh()
    assert register.quarantine("pi", "reasons").seconds == 2 * FIRST_SECONDS, "one that is over is not"
    with pytest.raises(ConfigError, match="no device 'another'"):
        command.release("another")


def test_joining_again_ends_no_quarantine(register: Register) -> None:
    """But with another key, once it was revoked, it may be another device."""
    token, pi = register.create("device", reusable=True).text, device()
    pi.join(register, token)
    register.quarantine("pi", "reasons")
    with pytest.raises(Quarantined):
        pi.speak(register, pi.join(register, token).credential)
    register.revoke("pi")
    again = device()
    again.speak(register, again.join(register, token).credential)
