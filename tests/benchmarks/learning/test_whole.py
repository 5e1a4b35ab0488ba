"""Whole runs: which they are, and the table that is made of them."""

from typing import Any

import pytest

from benchmarks.learning.arms import parsed
from benchmarks.learning.cells import Cell
from benchmarks.learning.whole import WHOLE, main, markdown, plan


def figures(accuracy: float) -> dict[str, Any]:
    curve = [{"gradients": 10, "accuracy": accuracy + 0.1}, {"gradients": 20, "accuracy": accuracy}]
    sent = {"ingress": 1_000_000, "egress": 1_000_000, "dense": 200_000_000}
    return {
        "figures": {"accuracy": accuracy, "mean_of_last": accuracy, "gradients": 20, "curve": curve, **sent}
    }


def test_each_run_has_something_to_compare_with() -> None:
    for name, whole in WHOLE.items():
        planned = list(plan([name], {}))
        ours, others = planned[: len(whole.n)], planned[len(whole.n) :]
        assert ours == [Cell(name, n, whole.data, "product", 0) for n in whole.n]
        assert others
        for cell in others:
            assert cell.n == (1 if parsed(cell.arm).central else whole.n[0])


def test_the_table_has_what_was_run() -> None:
    ran = Cell("speech", 10, "even", "product", 0)
    text = markdown({ran: figures(0.85), Cell("speech", 1, "even", "Sgd rate=0.1", 0): {"failed": "killed"}})
    (row,) = (line for line in text.splitlines() if line.startswith("| spoken"))
    assert row.endswith("| product | 85.0 | 85.0 | 95.0 | 2.0 MB (100x) |")
    table, missing = text.split("Not run: ")
    assert "Sgd" not in table
    assert "spoken digits, CNN: Sgd rate=0.1" in missing


def test_an_unknown_run_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "nothing"])
    assert "unknown runs: nothing; known are tagging" in capsys.readouterr().err


def test_settings_make_an_arm() -> None:
    arm = parsed("product downlink.share=0.5 local.optimizer=sgd evaluation.recover=false")
    assert arm.settings == {
        "downlink.share": 0.5,
        "local.optimizer": "sgd",
        "evaluation.recover": False,
    }
    assert arm.rival is None
