"""What devices' own evaluations come to."""

import pytest

from edgeflock.server.evaluation.federated import combine_evaluations
from edgeflock.shared.protocol.messages import Facts


def test_metrics_are_means_by_examples() -> None:
    reported: list[Facts] = [
        {"eval.accuracy": 0.5, "eval.num-examples": 10},
        {"eval.accuracy": 0.8, "eval.num-examples": 20},
    ]
    assert combine_evaluations(reported) == {"accuracy": pytest.approx(0.7), "num-examples": 30}
    assert combine_evaluations([{"eval.accuracy": 0.5}, {}]) is None


def test_absurd_numbers_of_one_device_spoil_no_mean() -> None:
    """JSON has no infinity, and nobody has so many examples."""
    honest: Facts = {"eval.accuracy": 0.5, "eval.num-examples": 10}
    boast: Facts = {"eval.accuracy": 0.9, "eval.num-examples": 1e308}
    huge: Facts = {"eval.loss": 1.7e308, "eval.num-examples": 10}
    assert combine_evaluations([honest, boast]) == {"accuracy": 0.5, "num-examples": 10}
    assert combine_evaluations([honest, huge]) == {"accuracy": 0.5, "num-examples": 20}


def test_ten_devices_have_a_worst_one() -> None:
    each: list[Facts] = [{"eval.accuracy": place / 10, "eval.num-examples": 10} for place in range(10)]
    assert combine_evaluations(each) == {
        "accuracy": pytest.approx(0.45),
        "worst-decile": 0.0,
        "num-examples": 100,
    }
    twenty: list[Facts] = [{"eval.acc": place / 20, "eval.num-examples": 10} for place in range(20)]
    found = combine_evaluations(twenty)
    assert found is not None
    assert found["worst-decile"] == pytest.approx(0.025)
