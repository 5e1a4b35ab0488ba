"""The budget of product code: .ci/budget.py."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "budget.py"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with two lines of product code, one of tests, and a budget of two."""
    for path, text in {
        "server/app.py": "one = 1\n",
        "client/run.py": "two = 2\n",
        "tests/test.py": "no = 0\n",
        ".ci/budget.txt": "2\n",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Begin"]):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True)
    return tmp_path


def asked(root: Path, base: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, SCRIPT, "--root", root, "--base", base], capture_output=True, text=True
    )


def test_within_the_budget(project: Path) -> None:
    done = asked(project, "HEAD")
    assert (done.returncode, done.stdout.splitlines()[-1].split()) == (0, ["all", "2", "+0"])


def test_above_the_budget(project: Path) -> None:
    (project / "server" / "app.py").write_text("one = 1\nthree = 3\n")
    done = asked(project, "HEAD")
    assert (done.returncode, done.stdout.splitlines()[-1].split()) == (1, ["all", "3", "+1"])
    assert "3 lines, 1 above the budget of 2: delete some, or raise .ci/budget.txt" in done.stderr


def test_a_base_that_git_does_not_know(project: Path) -> None:
    done = asked(project, "elsewhere")
    assert (done.returncode, done.stdout.splitlines()[-1].split()) == (0, ["all", "2"])
