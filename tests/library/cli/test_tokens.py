"""Secrets that no other user of the machine sees."""

import io
import logging
from pathlib import Path

import pytest

from edgeflock.cli.options import connection_of, load_settings, token_of
from edgeflock.shared.errors import ConfigError


def kept(tmp_path: Path, text: str = "secret\n", mode: int = 0o600) -> Path:
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_token_comes_from_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert connection_of("https://a", None, kept(tmp_path), None) == ("https://a", "secret")
    assert not caplog.records


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_file_that_others_read_is_told_of(
    mode: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = kept(tmp_path, mode=mode)
    with caplog.at_level(logging.WARNING):
        assert token_of(None, path) == "secret"
    assert f"chmod 600 {path}" in caplog.text


def test_a_token_comes_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\nand more\n"))
    assert token_of(None, Path("-")) == "secret"


def test_a_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EDGEFLOCK_TOKEN", "from there")
    assert connection_of(None, None, None, None)[1] == "from there"
    assert connection_of(None, "given", None, None)[1] == "given"
    assert connection_of(None, None, kept(tmp_path), None)[1] == "secret"
    monkeypatch.setenv("EDGEFLOCK_CLIENT__TOKEN", "by its whole name")
    assert load_settings(None, None).client.token == "by its whole name"


@pytest.mark.parametrize("text", ["", "\n", "two\nlines\n", "\x00"])
def test_a_file_without_a_token_is_told(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no token"):
        token_of(None, kept(tmp_path, text))


def test_a_token_is_given_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give one of them"):
        token_of("secret", kept(tmp_path))
    with pytest.raises(ConfigError, match="cannot be read"):
        token_of(None, tmp_path / "nothing")
