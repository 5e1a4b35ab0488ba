"""Metrics over batches: as torchmetrics, scikit-learn or NumPy have them of everything at once."""

import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as reference
from torch import Tensor
from torchmetrics.classification import MulticlassF1Score

from edgeflock.server.evaluation.scoring import Scores
from edgeflock.shared.data.samples import Dataset
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.torch_module import FlatModule

RANDOM = torch.Generator().manual_seed(5)


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=RANDOM)


def of_classes() -> tuple[Tensor, Tensor]:
    target = torch.randint(0, 4, (330,), generator=RANDOM)
    return drawn(330, 4) + torch.nn.functional.one_hot(target, 4), target


def of_labels() -> tuple[Tensor, Tensor]:
    target = torch.randint(0, 2, (330, 3), generator=RANDOM).float()
    return 0.3 * drawn(330, 3) + target - 0.2, target


def of_numbers() -> tuple[Tensor, Tensor]:
    target = drawn(330, 2)
    return target + 0.5 * drawn(330, 2), target


class Linear(torch.nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 4)


def scored(scores: Scores, output: Tensor, target: Tensor) -> dict[str, float | None]:
    for start in range(0, len(target), 100):  # 330 samples: the last batch is a small one
        scores.update(output[start : start + 100], target[start : start + 100])
    return scores.compute()


def among_top(output: Tensor, target: Tensor, k: int) -> float:
    return float(reference.top_k_accuracy_score(target, output, k=k, labels=range(4)))


Case = tuple[str, Callable[[], tuple[Tensor, Tensor]], Callable[[Tensor, Tensor], float]]

CASES: list[Case] = [
    ("accuracy", of_classes, lambda o, t: reference.accuracy_score(t, o.argmax(1))),
    ("topk(k=2)", of_classes, lambda o, t: among_top(o, t, 2)),
    ("f1", of_classes, lambda o, t: reference.f1_score(t, o.argmax(1), average="macro")),
    ("f1(average='micro')", of_classes, lambda o, t: reference.f1_score(t, o.argmax(1), average="micro")),
    ("auroc", of_classes, lambda o, t: reference.roc_auc_score(t, o.softmax(1), multi_class="ovr")),
    ("perplexity", of_classes, lambda o, t: math.exp(torch.nn.functional.cross_entropy(o, t).item())),
    ("f1", of_labels, lambda o, t: reference.f1_score(t, o > 0, average="macro")),
    ("auroc", of_labels, lambda o, t: reference.roc_auc_score(t, o)),
    ("accuracy", of_labels, lambda o, t: float(((o > 0) == t.bool()).float().mean())),
    ("mae", of_numbers, lambda o, t: float((o - t).abs().mean())),
    ("r2", of_numbers, lambda o, t: reference.r2_score(t, o)),
]


@pytest.mark.parametrize(("name", "made", "expected"), CASES)
def test_of_all_samples_in_batches(name: str, made: Any, expected: Any) -> None:
    output, target = made()
    scores = Scores([name])
    wanted = pytest.approx(float(expected(output, target)), rel=1e-5)
    assert scored(scores, output, target) == {name: wanted}
    assert scored(scores, output, target) == {name: wanted}  # nothing is left of the time before


def test_one_label_and_classes_of_every_word() -> None:
    output, target = drawn(50, 1), torch.arange(50).remainder(2).reshape(50, 1).float()
    auroc = reference.roc_auc_score(target, output)
    assert scored(Scores(["auroc"]), output, target) == {"auroc": pytest.approx(auroc)}
    words, meant = drawn(50, 7, 6), torch.randint(0, 7, (50, 6), generator=RANDOM)
    meant[:, -1] = -100  # no word
    counted = meant != -100
    right = float((words.argmax(1) == meant)[counted].float().mean())
    perplexity = math.exp(torch.nn.functional.cross_entropy(words, meant).item())
    assert scored(Scores(["accuracy", "perplexity"]), words, meant) == {
        "accuracy": pytest.approx(right),
        "perplexity": pytest.approx(perplexity, rel=1e-5),
    }


def spread(outputs: Tensor, targets: Tensor, *, of: float = 1.0) -> Tensor:
    return of * (outputs.argmax(1) - targets).abs().max()


class Mine:
    """Neither torchmetrics' nor a function."""

    def __init__(self, name: str = "x") -> None:
        self.found: list[Any] = []

    def update(self, output: Any, target: Tensor) -> None:
        self.found.append(output["x"])

    def compute(self) -> float:
        return float(sum(map(len, self.found)))

    def reset(self) -> None:
        self.found = []


def test_of_ones_own() -> None:
    output, target = of_classes()
    here = __name__
    own: dict[str, Any] = {
        "mean": lambda outputs, targets: outputs.mean(),
        "theirs": MulticlassF1Score(num_classes=4),
    }
    scores = Scores([f"{here}:spread(of=0.5)"], own)
    assert scored(scores, output, target) == {
        "spread(of=0.5)": float(spread(output, target)) / 2,
        "mean": pytest.approx(float(output.mean())),
        "theirs": pytest.approx(reference.f1_score(target, output.argmax(1), average="macro")),
    }
    several = Scores([f"{here}:Mine(name='y')", "f1"])
    several.update({"x": output}, target)
    assert several.compute() == {"Mine(name='y')": 330.0, "f1": None}


@pytest.mark.parametrize(
    ("name", "made", "why"),
    [
        ("auroc", of_numbers, "'auroc' does not fit .*numbers to predict.*mae and r2"),
        ("f1", of_numbers, "'f1' does not fit"),
        ("mae", of_classes, r"'mae' does not fit .*numbers that are predicted.*\[8, 4\]"),
        ("perplexity", of_labels, "'perplexity' does not fit"),
        ("topk(k=9)", of_classes, r"'topk\(k=9\)' does not fit"),
        ("topk(n=9)", of_classes, "takes k alone, not n"),
        ("f1(averaged='micro')", of_classes, "averaged"),
        ("no_such_module:f", of_classes, "cannot be imported.*no_such_module"),
        ("f2", of_classes, "'f2' is unknown; known are accuracy, topk, f1.*package.module:name"),
        ("math:pi", of_classes, "is a float; give a function"),
        (f"{__name__}:RANDOM", of_classes, "is a Generator"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(name: str, made: Any, why: str) -> None:
    output, target = made()

    def begin() -> None:
        scores = Scores([name])
        scores.update(output[:8], target[:8])
        scores.check()

    with pytest.raises(ConfigError, match=why):
        begin()


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two 'f1'"):
        Scores(["f1", "f1"])


def test_one_that_fails_later_is_left_out_and_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    broken = True

    def own(outputs: Tensor, targets: Tensor) -> float:
        if broken:
            raise ZeroDivisionError("nothing to divide")
        return 0.25

    output, target = of_classes()
    scores = Scores(["accuracy"], {"own": own, "infinite": lambda outputs, targets: np.inf})
    with caplog.at_level(logging.WARNING):
        first, second = (scored(scores, output, target) for _ in range(2))
    assert first["accuracy"] is not None
    assert first["own"] is second["own"] is first["infinite"] is None
    assert [record.getMessage() for record in caplog.records] == [
        "model.metrics: 'own' failed and is left out of this evaluation: nothing to divide"
    ]
    broken = False
    assert scored(scores, output, target)["own"] == 0.25


def test_what_is_right_of_each_class_is_of_the_batches_since_the_last_time() -> None:
    output, target = of_classes()
    scores, flat = Scores([]), FlatModule(f"{__name__}:Linear", "cross_entropy")
    data, theta = Dataset(output.numpy(), target.numpy()), flat.theta()
    predicted = flat.evaluation_module(theta)(output).argmax(1)
    for _ in range(2):
        classes = scores.evaluate(flat, data, theta).classes
        reported = reference.confusion_matrix(target, predicted)
        assert [*classes] == [(reported[n, n], reported[n].sum()) for n in range(4)]
