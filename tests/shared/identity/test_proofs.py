"""Proofs hold for exactly what was signed, by exactly who did."""

from hypothesis import given, settings
from hypothesis import strategies as st

from edgeflock.shared.identity import join_words, new_key, proves, public_of, session_words, sign

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


@settings(max_examples=25)
@given(sessions)
def test_its_owner_proves_a_key_and_nobody_else(said: tuple[bytes, bytes, bytes, str]) -> None:
    words = session_words(*said)
    assert proves(public_of(KEY), words, sign(KEY, words))
    assert not proves(public_of(KEY), words, sign(OTHER, words))
    assert not proves(public_of(OTHER), words, sign(KEY, words))


@given(sessions, sessions)
def test_other_questions_are_other_words(
    one: tuple[bytes, bytes, bytes, str], other: tuple[bytes, bytes, bytes, str]
) -> None:
    assert (session_words(*one) == session_words(*other)) == (one == other)


@given(joinings, joinings)
def test_other_joinings_are_other_words(
    one: tuple[str, bytes, bytes, str], other: tuple[str, bytes, bytes, str]
) -> None:
    assert (join_words(*one) == join_words(*other)) == (one == other)


@given(sessions, joinings)
def test_no_session_is_a_joining(
    session: tuple[bytes, bytes, bytes, str], joining: tuple[str, bytes, bytes, str]
) -> None:
    assert session_words(*session) != join_words(*joining)


@settings(max_examples=50)
@given(st.binary(max_size=70), st.binary(max_size=40))
def test_any_bytes_are_no_proof(signature: bytes, public: bytes) -> None:
    words = session_words(bytes(32), bytes(16), bytes(32), "pi")
    assert not proves(public_of(KEY), words, signature)
    assert not proves(public, words, sign(KEY, words))
