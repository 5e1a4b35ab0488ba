"""`edgeflock fleet` and `export` where only a project is: a model of one's own, and nothing that draws."""

from pathlib import Path

import numpy as np
import pytest

from tests.library.command_line import edgeflock

FLEET = """[fleet]
devices = 2
data = "csv:mine.csv?label=y"
[end]
updates = 4
[model]
module = "model:Model"
data = "csv:mine.csv?label=y"
"""


def project(folder: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2))
    lines = [f"{a:.3f},{b:.3f},{int(a > b)}" for a, b in rows]
    (folder / "mine.csv").write_text("\n".join(["a,b,y", *lines]) + "\n")
    assert edgeflock("init", "--data", "csv:mine.csv?label=y", cwd=folder).returncode == 0
    (folder / "pis.toml").write_text(FLEET)


@pytest.mark.slow
def test_a_fleet_of_a_projects_model_needs_nothing_that_draws(tmp_path: Path) -> None:
    project(tmp_path)
    done = edgeflock("fleet", "pis.toml", cwd=tmp_path, lacking="matplotlib")
    assert done.returncode == 0, done.stderr
    assert "No figures, for which matplotlib is needed: pip install '" in done.stderr
    assert "In edgeflock-fleet/pis: report.md, seed-*.jsonl" in done.stderr
    assert "accuracy.png" not in (tmp_path / "edgeflock-fleet" / "pis" / "report.md").read_text()


@pytest.mark.slow
def test_the_model_in_this_folder_is_exported(tmp_path: Path) -> None:
    project(tmp_path)
    done = edgeflock("export", "model:Model", "--data", "csv:mine.csv?label=y", "--digest", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip()) == 64
