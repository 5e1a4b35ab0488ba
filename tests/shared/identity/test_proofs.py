"""Proofs hold for exactly what was signed, by exactly who did."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeflock.shared.identity import join_message, new_key, proofs, public_of, session_message, sign, verify

KEY, OTHER = new_key(), new_key()

sessions = st.tuples(
    st.binary(min_size=32, max_size=32),
    st.binary(min_size=16, max_size=16),
    st.binary(min_size=32, max_size=32),
    st.text(max_size=20),
)
joinings = st.tuples(
    st.text("ef1.AZaz09-_", max_size=20),
    st.binary(min_size=32, max_size=32),
    st.binary(min_size=32, max_size=32),
    st.text(max_size=20),
)


@pytest.mark.slow
@settings(max_examples=25)
@given(sessions)
def test_its_owner_proves_a_key_and_nobody_else(said: tuple[bytes, bytes, bytes, str]) -> None:
    words = session_message(*said)
    assert verify(public_of(KEY), words, sign(KEY, words))
    assert not verify(public_of(KEY), words, sign(OTHER, words))
    assert not verify(public_of(OTHER), words, sign(KEY, words))


@given(sessions, sessions)
def test_other_questions_are_other_words(
    one: tuple[bytes, bytes, bytes, str], other: tuple[bytes, bytes, bytes, str]
) -> None:
    assert (session_message(*one) == session_message(*other)) == (one == other)


@given(joinings, joinings)
def test_other_joinings_are_other_words(
    one: tuple[str, bytes, bytes, str], other: tuple[str, bytes, bytes, str]
) -> None:
    assert (join_message(*one) == join_message(*other)) == (one == other)


@given(sessions, joinings)
def test_no_session_is_a_joining(
    session: tuple[bytes, bytes, bytes, str], joining: tuple[str, bytes, bytes, str]
) -> None:
    assert session_message(*session) != join_message(*joining)


@settings(max_examples=50)
@given(st.binary(max_size=70), st.binary(max_size=40))
def test_any_bytes_are_no_proof(signature: bytes, public: bytes) -> None:
    words = session_message(bytes(32), bytes(16), bytes(32), "pi")
    assert not verify(public_of(KEY), words, signature)
    assert not verify(public, words, sign(KEY, words))


P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P

Point = tuple[int, int]


def sum_of(one: Point, two: Point) -> Point:
    """RFC 8032, section 5.1.4, in affine coordinates."""
    (x1, y1), (x2, y2) = one, two
    t = D * x1 * x2 * y1 * y2 % P
    return (x1 * y2 + x2 * y1) * pow(1 + t, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - t, -1, P) % P


def times(number: int, point: Point) -> Point:
    result = (0, 1)
    for _ in range(number):
        result = sum_of(result, point)
    return result


def point_at(y: int, sign: int) -> Point:
    """The point of the curve with this y."""
    x2 = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(x2, (P + 3) // 8, P)
    if x * x % P != x2:
        x = x * pow(2, (P - 1) // 4, P) % P
    assert x * x % P == x2
    return (P - x) % P if x % 2 != sign else x, y


def encodings(y: int) -> list[bytes]:
    """All of 32 bytes that stand for the points with this y, the forms that RFC 8032 refuses among them."""
    forms = (y + k * P + sign * 2**255 for k in (0, 1) for sign in (0, 1) if y + k * P < 2**255)
    return [form.to_bytes(32, "little") for form in forms]


def test_no_key_of_small_order_proves_anything() -> None:
    """Of points of order 1, 2, 4 and 8 in all their forms; anybody signs anything for the first."""
    root = point_at(proofs._OF_ORDER_8, 0)
    assert times(8, root) == (0, 1) != times(4, root)
    small = {times(number, root) for number in range(8)}
    assert len(small) == 8
    assert {y for _, y in small} == proofs._SMALL
    for _, y in small:
        for public in encodings(y):
            assert not proofs.is_valid_key(public)
            for r in (bytes([1]) + bytes(31), public):
                assert not proofs.verify(public, b"any words", r + bytes(32))


def test_keys_have_one_encoding() -> None:
    for y in range(2, 19):  # of which there are two
        assert proofs.is_valid_key(y.to_bytes(32, "little"))
        assert not proofs.is_valid_key((y + P).to_bytes(32, "little"))
    assert not proofs.is_valid_key(public_of(new_key())[:31])


def test_a_signature_for_the_identity_is_of_nobody() -> None:
    """OpenSSL takes it."""
    identity = bytes([1]) + bytes(31)
    Ed25519PublicKey.from_public_bytes(identity).verify(identity + bytes(32), b"any words")
    assert not proofs.verify(identity, b"any words", identity + bytes(32))
