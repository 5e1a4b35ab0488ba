"""The benchmark of fine-tuning: pretraining that resumes, the domain's samples, both arms, and the report."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

if importlib.util.find_spec("tokenizers") is None:  # only the vocabulary needs it
    stand_in: Any = ModuleType("tokenizers")
    stand_in.Tokenizer = stand_in.decoders = stand_in.models = stand_in.pre_tokenizers = None
    stand_in.trainers = None
    sys.modules["tokenizers"] = stand_in

from benchmarks.finetune import arms, domain, pretrain, report, tokens

SHAPE = {"vocabulary": 40, "width": 32, "blocks": 1, "heads": 2, "context": 16}
TASK = arms.Task("mini", batch=4, gradients=40, tested=6, evaluations=4)


def rhyme(length: int, step: int) -> NDArray[np.uint16]:
    """Ids in which each follows from the one before: a new domain has another step."""
    return ((np.arange(length) * step) % 40).astype(np.uint16)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with token ids, as packages of texts would give them."""
    monkeypatch.setitem(pretrain.SIZES, "mini", SHAPE)
    monkeypatch.setitem(pretrain.BATCH, "mini", 4)
    np.savez(tmp_path / "general-40.npz", train=rhyme(3000, 1), held=rhyme(300, 1))
    np.savez(tmp_path / "domain-40.npz", train=rhyme(3000, 3), held=rhyme(300, 3))
    domain.domain.cache_clear()
    return tmp_path


def test_a_window_s_targets_are_its_next_tokens() -> None:
    x, y = tokens.windows(np.arange(35, dtype=np.uint16), 16)
    assert (x.shape, x.dtype.name, y.dtype.name) == ((2, 16), "float32", "int64")
    assert (y == x + 1).all()
    assert x[1, 0] == 16


def test_pretraining_that_is_stopped_goes_on_as_if_it_had_not_been(folder: Path) -> None:
    whole = [line["loss"] for line in pretrain.pretrain(folder, "mini", 40, 1e9, 10)]
    (folder / "mini.pt").unlink()
    first = pretrain.pretrain(folder, "mini", 40, 1e9, 10)
    parts = [next(first)["loss"], next(first)["loss"]]
    del first
    parts += [line["loss"] for line in pretrain.pretrain(folder, "mini", 40, 1e9, 10)]
    assert parts == whole
    assert whole[-1] < whole[0]
    assert list(pretrain.pretrain(folder, "mini", 40, 1e9, 10)) == []


def test_devices_hold_consecutive_eighths_and_the_central_machine_all(folder: Path) -> None:
    data = domain.domain(folder, "mini", 6)
    assert len(data.shares) == domain.DEVICES
    assert len(data.train) == sum(map(len, data.shares))
    assert data.shares[3].x[0, 0] == rhyme(3000, 3)[3000 * 3 // 8]
    assert len(data.test) == 6


@pytest.mark.slow
def test_both_arms_begin_with_the_pretrained_model_and_train_its_adapters(folder: Path) -> None:
    list(pretrain.pretrain(folder, "mini", 150, 1e9, 150))
    fleet = arms.fleet(TASK, folder, ["compression.select=0.2", "downlink.mode=exact"])
    central = arms.central(TASK, folder, ["0.01"])
    start = central["curve"][0]["loss"]
    for figures in (fleet, central):
        assert figures["curve"][-1]["gradients"] == TASK.gradients
        assert figures["loss"] < start
        assert figures["mean_loss"] == np.mean([row["loss"] for row in figures["curve"][-arms.LAST :]])
    assert fleet["adapters"] == 2 * 8 * (32 + 32)
    assert fleet["ingress"] + fleet["egress"] < report.dense(fleet["adapters"], TASK.gradients)


def test_the_report_says_who_has_learned_what_for_how_many_bytes() -> None:
    curve = [{"gradients": 1000, "loss": 3.0, "accuracy": 0.3}]
    figures = {"loss": 3.0, "accuracy": 0.3, "mean_loss": 3.1, "mean_accuracy": 0.29, "curve": curve}
    sent = {"ingress": 300_000, "egress": 500_000, "adapters": 10_000, "base": 85_000_000}
    memory = {"peak": 500e6, "idle": 380e6, "base": 85e6}
    text = report.report(
        [
            {"cell": {"size": "whole", "arm": "fleet", "settings": []}, "figures": {**figures, **sent}},
            {"cell": {"size": "whole", "arm": "central", "settings": ["0.003"]}, "figures": figures},
            {"cell": {"size": "whole", "arm": "memory", "settings": ["torch"]}, "figures": memory},
        ]
    )
    assert "| whole | 1,000 | eight devices, defaults | 29.00% | 30.00% | 3.100 | 22.2 | 0.30 MB" in text
    assert "one machine, AdamW, rate 0.003" in text
    assert "80.0 MB, 100 times that" in text
    assert "16.0 MB, 20 times" in text
    assert "500 MB at most, where one with a tiny model takes 380 MB; the base is 85 MB" in text
