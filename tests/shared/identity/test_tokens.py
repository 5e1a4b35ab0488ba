"""Tokens as text: what is written is read, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.identity import Token, from_base64url, to_base64url

tokens = st.builds(
    Token,
    st.binary(min_size=24, max_size=24),
    st.just(b"") | st.binary(min_size=32, max_size=32),
    st.just(b"") | st.binary(min_size=32, max_size=32),
)

TEXT = Token(bytes(range(24)), bytes(range(32)), bytes(range(32, 64))).text


@given(tokens)
def test_what_is_written_is_read(token: Token) -> None:
    assert Token.parse(token.text) == token
    assert token.text.isascii()
    assert not set(token.text) & set(" \t\n\"'\\")


@given(st.text(max_size=200) | st.text("efABZ019-_.=", max_size=200).map(lambda text: "ef1." + text))
def test_a_text_is_refused_or_is_the_one_of_its_token(text: str) -> None:
    try:
        token = Token.parse(text)
    except ConfigError:
        return
    assert token.text == text


@given(tokens, st.data())
def test_a_token_that_lost_its_end_is_none(token: Token, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(token.text) - 1))
    shorter = token.text[:end]
    if token.graph and shorter.count(".") == 2 and len(shorter) == len(Token(token.secret, token.pin).text):
        return  # whole, without the graph's digest
    if shorter == Token(token.secret).text:
        return  # whole, without a pin
    with pytest.raises(ConfigError):
        Token.parse(shorter)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "begins with ef1."),
        ("secret", "begins with ef1."),
        ("ef2." + TEXT[4:], "has version 2, and this Edgeflock reads version 1"),
        ("ef1.abc", "1 of its parts follow"),
        (TEXT + ".", "4 of its parts follow"),
        (TEXT.rsplit(".", 1)[0] + ".", "its graph is empty"),
        (TEXT.replace("ef1.A", "ef1.*"), "its secret is not base64url"),
        (TEXT.replace("ef1.A", "ef1."), "its secret is not base64url|its secret has"),
        ("ef1..", "its secret has 0 bytes and should have 24"),
        (
            f"ef1.{to_base64url(bytes(24))}.{to_base64url(bytes(31))}",
            "its pin has 31 bytes and should have 0 or 32",
        ),
    ],
)
def test_what_is_wrong_is_told_and_no_secret(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        Token.parse(text)
    assert to_base64url(bytes(range(24)))[:12] not in str(refused.value)


def test_tokens_are_new_each_time() -> None:
    assert Token.new().secret != Token.new().secret


@pytest.mark.parametrize("text", ["A", "AB=", "AB", "A+", "A/", "AA\n", "Ä"])
def test_base64url_has_one_form(text: str) -> None:
    with pytest.raises(ValueError, match="base64url"):
        from_base64url(text)
