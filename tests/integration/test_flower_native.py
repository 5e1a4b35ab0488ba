"""The Flower examples as they are, at a server of our own, without Flower's processes."""

import asyncio
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from edgeflock.api.server import Server
from edgeflock.client.run import run_client
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.shared.settings.client import ClientSettings
from edgeflock.shared.settings.config import parse

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "package", "first"),
    [("flower-numpy", "digits_numpy", "get_model"), ("flower-sklearn", "digits_sklearn", "get_arrays")],
)
async def test_an_example_learns(
    example: str, package: str, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, initial = EXAMPLES / example, tmp_path / "initial.npz"
    monkeypatch.setattr(sys, "path", [str(app), *sys.path])
    np.savez(initial, *getattr(import_module(f"{package}.task"), first)())
    asked = [
        *(f"model.module=arrays:{initial}", f"model.evaluate={package}.task:evaluate", "server.open=true"),
        *("server.port=0", "end.updates=60", f"server.directory={tmp_path / 'run'}"),
    ]
    async with Server.configured(parse(overrides=asked, tables=CHOICES)) as server:
        devices = (
            ClientSettings(
                server=server.url,
                name=f"device-{partition}",
                directory=str(tmp_path / "devices"),
                flower_app=str(app),
                node_config=f"partition-id={partition} num-partitions=2",
                health=False,
            )
            for partition in range(2)
        )
        await asyncio.gather(*map(run_client, devices))
        result = await server.until()
    last = result.evaluations[-1]
    assert last.accuracy is not None
    assert last.accuracy > 0.8


@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.glob("flower-*")))
def test_an_example_depends_on_nothing_that_no_index_has(example: str) -> None:
    """A SuperLink installs what an app names, and no index has edgeflock."""
    project = tomllib.loads((EXAMPLES / example / "pyproject.toml").read_text())["project"]
    assert not [name for name in project["dependencies"] if name.startswith("edgeflock")]
