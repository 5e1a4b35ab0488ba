"""The examples in docstrings are run, wherever there are some."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

from tests.documents.blocks import ROOT

ROOMS = ("client", "devices", "server", "shared", "tui")


def modules() -> list[str]:
    """Those with an example, by name."""
    found = [
        path for room in ROOMS for path in (ROOT / room).rglob("*.py") if ">>> " in path.read_text("utf-8")
    ]
    return sorted("edgeflock." + ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in found)


@pytest.mark.parametrize("name", modules())
def test_examples_come_to_what_they_say(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = doctest.testmod(import_module(name))
    assert run.attempted
    assert not run.failed
