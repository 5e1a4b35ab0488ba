"""Tables that other packages add to: the example of one, as if it were installed."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import invalidate_caches
from pathlib import Path

import numpy as np
import pytest

from edgeflock.server.descent import Step
from edgeflock.server.descent.weighting import Rule, rule, rule_of
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.shared.codecs.others import Codings
from edgeflock.shared.codecs.values import CODINGS, ValueCoding
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.plugins import Table
from edgeflock.shared.settings.config import parse

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
    with pytest.raises(
        ConfigError, match=r"plug-in 'squared' of edgeflock.rules .*: another one has this name"
    ):
        list(Table("edgeflock.rules", {"squared": 1}))


def test_one_that_cannot_be_loaded_is_named(install: Install) -> None:
    install({"edgeflock.rules": {"lost": "edgeflock_plugin.nowhere:LOST"}})
    table: Table[int] = Table("edgeflock.rules", {})
    with pytest.raises(ConfigError, match=r"'lost' .* cannot be loaded: ModuleNotFoundError: .* correct it"):
        table["lost"]


def halved(step: Step, version: int) -> float:
    return 0.5


@dataclass(frozen=True)
class Falling:
    """A weighting rule with a number of its own."""

    power: int = 1

    def weight(self, step: Step, version: int) -> float:
        return float(1 / max(1, version - step.base) ** self.power)


HERE = "tests.shared.test_plugins:"


def test_settings_may_import_and_sockets_may_not() -> None:
    table: Table[Rule] = Table("edgeflock.nothing", {}, rule_of)
    with pytest.raises(KeyError):
        table[f"{HERE}halved"]
    assert table.can_resolve(f"{HERE}halved")
    assert table.resolve(f"{HERE}halved").weight is halved
    assert table[f"{HERE}halved"].weight is halved  # by now it is known
    with pytest.raises(
        ConfigError, match=r"tests.shared.test_plugins:lost cannot be imported: AttributeError"
    ):
        table.resolve(f"{HERE}lost")
    with pytest.raises(
        ConfigError, match=r"plugins:EXAMPLE is a PosixPath, which cannot be an entry of edgeflock.noth"
    ):
        table.resolve(f"{HERE}EXAMPLE")
    with pytest.raises(ConfigError, match=r"coordination.rule = 'os:lost': os:lost cannot be imported: Attr"):
        parse(overrides=["coordination.rule=os:lost"], tables=CHOICES)
    settings = parse(overrides=[f"coordination.rule={HERE}halved"], tables=CHOICES)
    assert rule(settings.coordination.rule) == Rule(halved)


def test_an_object_has_a_name_that_tells_it_from_others() -> None:
    table: Table[Rule] = Table("edgeflock.nothing", {}, rule_of)
    names = [
        table.register(one) for one in (halved, Falling(2), Falling(3), Rule(halved, per_parameter=True))
    ]
    assert names[:3] == [f"{HERE}halved", f"{HERE}Falling(power=2)", f"{HERE}Falling(power=3)"]
    assert names[3].endswith("weighting:Rule(weight=tests.shared.test_plugins.halved, per_parameter=True)")
    assert [table.is_process_local(name) for name in names] == [False, True, True, True]
    step = Step(0, slice(0), np.zeros(0, np.float32))
    assert [table[name].weight(step, 2) for name in names] == [0.5, 1 / 4, 1 / 8, 0.5]
    assert table[names[3]].per_parameter
    assert table.is_process_local(table.register(lambda step, version: 1.0))
    with pytest.raises(
        ConfigError,
        match=r"<object object at .*> has no name that is the same in every process; make it a func",
    ):
        table.register(object())
    with pytest.raises(
        ConfigError, match=r"builtins:3 is a int, which cannot be an entry of edgeflock.nothing"
    ):
        table.register(3)


@pytest.mark.parametrize(("mode", "says"), [(5, "a coding has mode = 5: choose one of 64 to 127"), (70, "")])
def test_a_coding_has_a_number_of_its_own(mode: int, says: str) -> None:
    table = Codings[ValueCoding]("no", {}, ValueCoding)
    coding = ValueCoding(mode, CODINGS["f32"].encode, CODINGS["f32"].decode, len)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=says) if says else nullcontext():
        assert table[table.register(coding)] is coding


PROGRAM = """
import asyncio
import numpy as np
from edgeflock.client.data.sources import open_source
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.server.coordination import create_coordinator
from edgeflock.server.descent import Parameters, Regime, Step, StepMethod
from edgeflock.shared.codecs import values
from edgeflock.shared.model.layout import Layout
from edgeflock.server.descent.weighting import rule
from edgeflock.shared.model.losses import LOSSES
from edgeflock.shared.settings.config import parse

chosen = ["rule=squared", "mode=wary"]
overrides = ["model.loss=smooth", "compression.values=bf16", *map("coordination.".__add__, chosen)]
overrides += ["optimizer.kind=lion", "optimizer.schedule=inverse", "optimizer.period=1"]
settings = parse(overrides=overrides, tables=CHOICES)
print(LOSSES[settings.model.loss].function)
print(type(create_coordinator(settings.coordination, Layout.from_shapes([("w", (2,), False)]))).__name__)

numbers = np.array([1.0, -2.5, 0.15625], np.float32)
octets, counts = values.encode(numbers, np.array([3]), settings.compression.values), np.array([3])
print((len(octets), values.decode(octets, counts, 64).tolist()))

step = Step(4, slice(0), np.zeros(0, np.float32))
print([rule(settings.coordination.rule).weight(step, version) for version in (4, 5, 8)])

method = StepMethod.from_config(settings)
parameters = Parameters(0, np.zeros(3, np.float32), regime=Regime("none", 1.0, 8, method=method), start=0)
for _ in range(2):
    step = Step(parameters.version, np.array([0, 2]), np.array([3.0, -0.5], np.float32))
    assert parameters.fits(step, 1e4)
    parameters.apply(step)
print(parameters.theta.tolist())

async def first():
    async for chunk in open_source("waves:?size=6"):
        return chunk.x.shape

print(asyncio.run(first()))
"""


@pytest.mark.slow
def test_the_example_is_chosen_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own: a table looks once."""
    described(tmp_path, POINTS)
    path = [str(tmp_path), str(EXAMPLE), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "torch.nn.functional:smooth_l1_loss",
        "Wary",
        str((6, [1.0, -2.5, 0.15625])),
        str([1.0, 1.0, 1 / 4**2]),
        str([-1.5, 0.0, 1.5]),  # a step of 1, and one of a half
        "(100, 6)",
    ], done.stderr
