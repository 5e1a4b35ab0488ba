"""docs/library.md and the policy in docs/reinforcement-learning.md are run as they stand."""

import re
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

ROOT = Path(__file__).parents[3]

BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.mark.slow
def test_the_document_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / "docs/library.md").read_text("utf-8"))
    assert len(blocks) == 5
    names: dict[str, Any] = {"__name__": "__main__"}  # as in a notebook: nobody can import what it defines
    for block in blocks:
        exec(compile(block, "docs/library.md", "exec"), names)
    assert names["result"].version == 300
    assert names["result"].accuracy > 0.85
    assert names["emulated"].outcome.updates == 300
    assert load_file("model.safetensors").keys() == names["net"].state_dict().keys()
    assert Path("curves.png").stat().st_size


def test_a_policy_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gymnasium", reason="needs gymnasium: pip install 'edgeflock[rl]'")
    monkeypatch.chdir(tmp_path)
    (block,) = BLOCK.findall((ROOT / "docs/reinforcement-learning.md").read_text("utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(block, "docs/reinforcement-learning.md", "exec"), names)
    assert -2000 < names["last"].metrics["return"] < 0
