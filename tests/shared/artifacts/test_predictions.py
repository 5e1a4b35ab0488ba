"""The meaning of outputs: classes and their probabilities, numbers in their units."""

from dataclasses import replace

import numpy as np
import pytest

from edgeflock.shared.artifacts import ModelInfo, interpret
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.layout import Layout

INFO = ModelInfo(
    model="m:M", layout=Layout.from_shapes([("w", (1,))]), run="r", version=1, loss="cross_entropy"
)
LOGITS = np.log(np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]], np.float32))


def test_classes_have_names_and_probabilities() -> None:
    found = interpret(LOGITS, replace(INFO, data=Description(labels=("a", "b", "c"))))
    assert found.values.tolist() == ["a", "c"]
    assert found.classes == ("a", "b", "c")
    assert found.probabilities is not None
    np.testing.assert_allclose(found.probabilities, [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]], rtol=1e-5)
    assert interpret(LOGITS, INFO).values.tolist() == [0, 2]


def test_large_logits_do_not_overflow() -> None:
    found = interpret(np.array([[1e4, -1e4]], np.float32), INFO).probabilities
    assert found is not None
    assert found.tolist() == [[1.0, 0.0]]


def test_of_a_sequence_each_place_has_a_class() -> None:
    logits = np.zeros((2, 3, 4), np.float32)
    logits[:, 1] = 1
    assert interpret(logits, INFO).values.tolist() == [[1, 1, 1, 1]] * 2


def test_numbers_are_in_their_units() -> None:
    outputs = np.array([[0.0], [1.0], [-2.0]], np.float32)
    data = Description(numbers=True, target=(100.0, 10.0))
    for loss in ("mse", "huber", "l1", ""):
        assert interpret(outputs, replace(INFO, loss=loss, data=data)).values.ravel().tolist() == [
            100,
            110,
            80,
        ]
    assert interpret(outputs, replace(INFO, loss="mse")).values is outputs


def test_a_yes_has_a_probability() -> None:
    found = interpret(np.array([[0.0, 3.0]], np.float32), replace(INFO, loss="bce"))
    assert found.values.tolist() == [[0, 1]]
    assert found.probabilities is not None
    np.testing.assert_allclose(found.probabilities, [[0.5, 1 / (1 + np.exp(-3))]], rtol=1e-6)


def test_outputs_of_another_model_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"the model's output is \[3\], and its run has 2 classes"):
        interpret(LOGITS, replace(INFO, data=Description(labels=("a", "b"))))
