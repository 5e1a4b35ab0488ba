"""What `import edgeflock` brings, and what it does not."""

import importlib
from importlib.metadata import version

import pytest

import edgeflock as ef
from edgeflock.shared.errors import ConfigError
from tests.test_imports import modules_after


def test_importing_it_loads_next_to_nothing() -> None:
    loaded = modules_after("import edgeflock; edgeflock.__version__; dir(edgeflock)")
    assert not loaded & {"torch", "aiohttp", "numpy", "pydantic", "matplotlib"}
    assert [name for name in loaded if name.startswith("edgeflock")] == ["edgeflock"]


def test_what_is_described_loads_no_torch() -> None:
    """A Model and data are there before anything runs; a device in this process needs no server."""
    loaded = modules_after("import edgeflock as ef; ef.Model, ef.deal, ef.Result, ef.Client, ef.ConfigError")
    assert not loaded & {"torch", "matplotlib", "sqlite3", "edgeflock.server"}


def test_the_names_are_pinned_and_there() -> None:
    assert ef.__all__ == [
        "Client",
        "ConfigError",
        "Diverged",
        "EdgeflockError",
        "Fleet",
        "Loss",
        "Model",
        "Refused",
        "Result",
        "Server",
        "__version__",
        "back_up",
        "deal",
        "load",
        "plot",
        "restore",
        "roll_back",
        "status",
    ]
    assert dir(ef) == sorted(ef.__all__)
    assert ef.__version__ == version("edgeflock")
    for name in ef.__all__:
        assert getattr(ef, name) is not None
    assert ef.ConfigError is ConfigError


def test_another_name_is_not_there() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'Sever'; it has Client, .* Server, "):
        _ = ef.Sever


def test_what_is_missing_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without torch."""

    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name="torch")

    monkeypatch.delattr(ef, "Server", raising=False)
    monkeypatch.setattr(ef, "import_module", absent)
    with pytest.raises(ConfigError, match=r"edgeflock.Server needs torch: pip install '.*\[server\]'"):
        _ = ef.Server


def test_the_rooms_keep_their_doors() -> None:
    assert importlib.import_module("edgeflock.server").__doc__
