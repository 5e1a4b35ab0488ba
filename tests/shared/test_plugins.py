"""Tables that other packages add to: the example of one, as if it were installed."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import invalidate_caches
from pathlib import Path

import pytest

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.plugins import Table

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"

POINTS = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"]

Install = Callable[[dict[str, dict[str, str]]], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Have a distribution with these entry points among what is installed."""

    def install(points: dict[str, dict[str, str]]) -> None:
        described(tmp_path, points)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.syspath_prepend(EXAMPLE)
        invalidate_caches()

    return install


def described(folder: Path, points: dict[str, dict[str, str]]) -> None:
    """What an installer leaves of a distribution."""
    known = folder / "edgeflock_plugin-1.0.0.dist-info"
    known.mkdir()
    (known / "METADATA").write_text("Metadata-Version: 2.1\nName: edgeflock-plugin\nVersion: 1.0.0\n")
    lines = [
        line for group, names in points.items() for line in (f"[{group}]", *map(" = ".join, names.items()))
    ]
    (known / "entry_points.txt").write_text("\n".join(lines))


def test_without_plugins_the_table_is_ours() -> None:
    table = Table("edgeflock.nothing", {"a": 1})
    assert (dict(table), len(table), "b" in table) == ({"a": 1}, 1, False)


def test_a_plugin_stands_behind_ours_and_loads_when_it_is_wanted(install: Install) -> None:
    install(POINTS)
    table = Table("edgeflock.sources", {"a": 1})
    assert (table["a"], list(table), len(table)) == (1, ["a", "waves"], 2)
    assert "edgeflock_plugin.source" not in sys.modules
    assert table["waves"].__name__ == "waves"  # type: ignore[attr-defined]


def test_it_takes_no_name_of_ours(install: Install) -> None:
    install(POINTS)
    with pytest.raises(ConfigError, match=r"plug-in 'squared' of edgeflock.rules .*: there is one of this"):
        list(Table("edgeflock.rules", {"squared": 1}))


def test_one_that_cannot_be_loaded_is_named(install: Install) -> None:
    install({"edgeflock.rules": {"lost": "edgeflock_plugin.nowhere:LOST"}})
    table: Table[int] = Table("edgeflock.rules", {})
    with pytest.raises(ConfigError, match=r"'lost' .* cannot be loaded: ModuleNotFoundError: .* mend it"):
        table["lost"]


PROGRAM = """
import asyncio
import numpy as np
from edgeflock.client.data.sources import open_source
from edgeflock.server.choices import CHOICES
from edgeflock.server.descent import Step
from edgeflock.server.descent.weighting import rule
from edgeflock.shared.model.losses import LOSSES
from edgeflock.shared.settings.config import parse

settings = parse(overrides=["coordination.rule=squared", "model.loss=smooth"], tables=CHOICES)
print(LOSSES[settings.model.loss].function)

step = Step(4, slice(0), np.zeros(0, np.float32))
print([rule(settings.coordination.rule).weight(step, version) for version in (4, 5, 8)])

async def first():
    async for chunk in open_source("waves:?size=6"):
        return chunk.x.shape

print(asyncio.run(first()))
"""


def test_the_example_is_chosen_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own: a table looks once."""
    described(tmp_path, POINTS)
    path = [str(tmp_path), str(EXAMPLE), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "torch.nn.functional:smooth_l1_loss",
        str([1.0, 1.0, 1 / 4**2]),
        "(100, 6)",
    ], done.stderr
