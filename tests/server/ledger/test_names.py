"""Names in a journal that are import strings: whoever made it has no code run here."""

import json
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeflock.server.descent import KINDS, SCHEDULES, Parameters, Regime, StepMethod
from edgeflock.server.descent.optimizer import Optimizer
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.server.journal.journal import Journal
from edgeflock.server.ledger.recovery import recover, replay
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.config import parse
from tests.server.pushes import (
    LAYOUT,
    REGIME,
    Watched,
    commit,
    copy_as_killed,
    open_engine,
    push,
    recovered,
    sparse_update,
    tampered,
)

NAMES = {
    "coordination.rule": "UPDATE regimes SET rule = 'stranger:thing'",
    "optimizer.kind": "UPDATE regimes SET how = '" + json.dumps({"kind": "stranger:thing"}) + "'",
    "optimizer.schedule": "UPDATE regimes SET how = '" + json.dumps({"schedule": "stranger:thing"}) + "'",
}


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of three updates that ended at once, in a folder beside a module that could be imported."""
    (tmp_path / "stranger.py").write_text("def thing(*given):\n    return 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "run").mkdir()
    Watched(tmp_path / "run").commit(3)
    return copy_as_killed(tmp_path / "run", tmp_path / "killed")


@pytest.mark.parametrize("read", [recover, replay])
@pytest.mark.parametrize("key", NAMES)
def test_a_journal_imports_nothing(killed: Path, key: str, read: Callable[..., Parameters]) -> None:
    tampered(killed / "journal.sqlite", NAMES[key], sealed=True)
    arguments = (REGIME,) if read is recover else ()
    says = rf"the journal has {key} = 'stranger:thing', and .* set {key} = 'stranger:thing' yourself"
    with closing(Journal(killed / "journal.sqlite")) as journal:
        with pytest.raises(ConfigError, match=says):
            read(journal, LAYOUT, *arguments)
    assert "stranger" not in sys.modules


@pytest.mark.parametrize("key", NAMES)
def test_settings_that_say_the_same_take_the_run_up(
    killed: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CHOICES[key], "_entries", dict(CHOICES[key]))
    tampered(killed / "journal.sqlite", NAMES[key], sealed=True)
    settings = parse(overrides=[f"{key}=stranger:thing"], tables=CHOICES)
    assert sys.modules.pop("stranger")
    rule = settings.coordination.rule if key == "coordination.rule" else REGIME.rule
    assert recovered(killed, replace(REGIME, rule=rule, method=StepMethod.from_config(settings))).version == 3


def signs(of: Optimizer, theta: Any, memory: Any, where: Any, gradient: Any, rate: np.float32) -> None:
    """An optimizer of this program."""
    theta[where] -= rate * np.sign(gradient)


def halved(how: StepMethod, at: float) -> float:
    return 0.5


def test_a_run_that_was_stopped_goes_on_by_other_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing waits to be counted by the old ones, nobody needs to know them."""
    with monkeypatch.context() as patch:
        for table in (KINDS, SCHEDULES):
            patch.setattr(table, "_entries", dict(table))
        how = StepMethod(kind=KINDS.register(signs), schedule=SCHEDULES.register(halved))
        _, engine = open_engine(tmp_path, Regime("none", 0.5, 5, method=how))
        device, before = engine.device_id("a"), engine.theta()[1]
        commit(engine, [push(device, sparse_update(1, 0, {2: 3.0, 5: -0.25}))])
        moved = np.zeros(LAYOUT.size, np.float32)
        moved[[2, 5]] = [-0.25, 0.25]
        assert np.array_equal(engine.theta()[1], before + moved)
        killed = copy_as_killed(tmp_path, tmp_path / "killed")
        theta = engine.theta()[1]
        engine.close()
    with pytest.raises(ConfigError, match=r"optimizer.kind|optimizer.schedule"):
        recovered(killed, REGIME)
    assert np.array_equal(recovered(tmp_path, REGIME).theta, theta)
