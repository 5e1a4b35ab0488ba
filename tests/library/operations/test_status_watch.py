"""`edgeflock status --watch`: the same document again and again, also past a server that is away."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from edgeflock.operations import status
from edgeflock.shared.errors import ConfigError, EdgeflockError, Unauthorized

AWAY = EdgeflockError("nothing listens at vm")


def watch(
    monkeypatch: pytest.MonkeyPatch, *answers: dict[str, Any] | EdgeflockError, as_json: bool = False
) -> list[float]:
    """Watch a server that answers so, and then is interrupted. Return the pauses."""
    following: Iterator[dict[str, Any] | EdgeflockError] = iter(answers)
    pauses: list[float] = []

    async def answer(*_: object, **__: object) -> dict[str, Any]:
        told = next(following, None)
        if told is None:
            raise KeyboardInterrupt
        if isinstance(told, EdgeflockError):
            raise told
        return told

    monkeypatch.setattr(status, "status", answer)
    monkeypatch.setattr(time, "sleep", pauses.append)
    try:
        status.watch_status("vm", "", 2.0, as_json=as_json)
    except KeyboardInterrupt:
        return pauses
    raise AssertionError("it ends with an error or an interrupt only")


def told(version: int, state: str = "training") -> dict[str, Any]:
    return {"run": "r", "state": state, "version": version}  # what a device's token shows


def test_a_server_that_is_away_is_named_once_and_asked_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watch(monkeypatch, told(1), AWAY, AWAY, told(2), AWAY, told(3)) == [2.0] * 6
    out, err = capsys.readouterr()
    assert [line for line in out.splitlines() if line.startswith("Run")] == [
        f"Run r, training, version {version}" for version in (1, 2, 3)
    ]
    assert err == "edgeflock: nothing listens at vm; trying again every 2 s\n" * 2


def test_as_json_it_is_an_object_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watch(monkeypatch, told(1), told(2), as_json=True)
    assert capsys.readouterr().out.count("\n") == 2


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ([AWAY], EdgeflockError),
        ([told(9, "finished"), AWAY], EdgeflockError),
        ([told(1), ConfigError("vm speaks TLS")], ConfigError),
        ([told(1), Unauthorized("expired")], Unauthorized),
    ],
    ids=["from the start", "after the end", "no other attempt helps", "an expired token"],
)
def test_what_ends_it(
    answers: list[Any], error: type[EdgeflockError], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(error):
        watch(monkeypatch, *answers)
