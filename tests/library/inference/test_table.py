"""Predictions as CSV, and a model's card."""

from io import StringIO

import numpy as np
import pytest

from edgeflock.inference.fetching import card
from edgeflock.inference.predicting import write
from edgeflock.shared.artifacts import ModelInfo, Predictions
from edgeflock.shared.data.unlabelled import UnlabelledData
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.layout import Layout

SAMPLES = UnlabelledData(None, 2, ("id", "prediction"), lambda: iter([("a", "x,y"), ("b", "")]))
LIKELY = np.array([[0.25, 0.75], [1.0, 0.0]], np.float32)


def written(predictions: Predictions, *, every_class: bool = False) -> str:
    file = StringIO()
    write(file, SAMPLES, predictions, every_class=every_class)
    return file.getvalue()


@pytest.mark.parametrize(
    ("predictions", "every_class", "expected"),
    [
        (
            Predictions(np.array(["dog", "cat"]), LIKELY, ("cat", "dog")),
            False,
            'id,prediction,prediction_,probability\na,"x,y",dog,0.75\nb,,cat,1\n',
        ),
        (
            Predictions(np.array(["dog", "cat"]), LIKELY, ("cat", "dog")),
            True,
            "id,prediction,prediction_,probability,probability cat,probability dog\n"
            'a,"x,y",dog,0.75,0.25,0.75\nb,,cat,1,1,0\n',
        ),
        (
            Predictions(np.array([[1.5], [2.0]], np.float32)),
            False,
            'id,prediction,prediction_\na,"x,y",1.5\nb,,2.0\n',
        ),
        (
            Predictions(np.array([[1.5, 3.0], [2.0, 4.0]], np.float32)),
            False,
            'id,prediction,prediction_0,prediction_1\na,"x,y",1.5,3.0\nb,,2.0,4.0\n',
        ),
        (
            Predictions(np.array([[0, 1], [1, 1]]), LIKELY[..., None], ("cat", "dog")),
            False,
            'id,prediction,prediction_\na,"x,y",0 1\nb,,1 1\n',
        ),
        (
            Predictions(np.array([[1], [0]]), np.array([[0.9], [0.1]], np.float32)),
            False,
            'id,prediction,prediction_,probability\na,"x,y",1,0.9\nb,,0,0.1\n',
        ),
    ],
)
def test_predictions_follow_the_columns_of_the_input(
    predictions: Predictions, every_class: bool, expected: str
) -> None:
    assert written(predictions, every_class=every_class) == expected


def test_a_card_says_what_is_known_and_keeps_to_its_tables() -> None:
    data = Description(("a|b", "<script>\n"), (0.0, 0.0), (1.0, 1.0), ("yes", "no"))
    layout = Layout.from_shapes([("w", (3, 2))])
    info = ModelInfo(model="m:M", layout=layout, run="r", version=1234, loss="cross_entropy", data=data)
    text = card(info, {}, "model.onnx")
    assert "version 1,234 of run `r`" in text
    assert "| columns | a\\|b, &lt;script> " in text
    assert "A viewer's or an admin's token adds" in text
    for line in text.splitlines():
        assert not line.startswith("|") or line.replace("\\|", "").count("|") == 3, line


@pytest.mark.parametrize(
    ("mode", "reported"), [("async", "none: the server sees each"), ("private", "of each round: ")]
)
def test_a_card_says_whether_the_server_saw_single_updates(mode: str, reported: str) -> None:
    info = ModelInfo(model="m:M", layout=Layout.from_shapes([("w", (3, 2))]), run="r", version=1)
    status = {
        "devices": [],
        "coordination": {"mode": mode, "rule": "adacomp"},
        "ingress": 0,
        "egress": 0,
    }
    assert f"| secure aggregation | {reported}" in card(info, status, "model.safetensors")
