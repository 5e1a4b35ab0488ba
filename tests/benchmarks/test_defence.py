"""`python -m benchmarks.defence`: which rows are run, and the published ones."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks import defence
from benchmarks.defence import Row, missing_of, read, rows, run_missing, table

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize("sgd", [False, True])
def test_the_page_has_what_the_published_rows_say(sgd: bool) -> None:
    found = read(RESULTS / "defence.jsonl", [], sgd)
    said = table(found, list(rows(["mnist", "words", "digits"], [50, 10, 4], 3)), "none")
    page = (RESULTS / "defence.md").read_text().splitlines()
    assert len(found) >= 5
    assert [line for line in said.splitlines() if line.startswith("|") and line not in page] == []


def test_what_is_in_the_file_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def run(row: Row, overrides: list[str], sgd: bool) -> dict[str, object]:
        ran.append(row.name)
        return {**asdict(row), "accuracy": 0.5, "overrides": overrides, "sgd": sgd}

    monkeypatch.setattr(defence, "run", run)
    path, wanted = tmp_path / "rows.jsonl", list(rows(["digits"], [4], 1))[:3]
    run_missing(wanted[:2], path, [], False)
    assert missing_of(wanted, read(path, [], False)) == wanted[2:]
    run_missing(wanted, path, [], False)
    assert ran == [row.name for row in wanted]
    run_missing(wanted[:1], path, [], True)
    assert ran[3:] == [wanted[0].name], "with other settings it is another row"
    assert {"commit", "machine", "date"} <= json.loads(path.read_text().splitlines()[0]).keys()
