"""A model's layout in shared and personal parts."""

import numpy as np
import pytest

from edgeflock.shared.errors import ConfigError, Malformed
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.personal import Personal, SplitLayout, personal_names, whole_layout
from edgeflock.shared.model.start import CONSTANT, NORMAL, UNIFORM, Filling, Start, generate

WHOLE = Layout.from_shapes(
    [
        ("body.w", (2, 3)),
        ("head.w", (3, 2)),
        ("body.b", (2,)),
        ("head.b", (2,)),
        ("n.running_mean", (2,), True),
    ]
)
HEAD = ["head.w", "head.b"]


def test_patterns_name_parameters() -> None:
    assert personal_names(WHOLE, ["head.*"]) == HEAD
    assert personal_names(WHOLE, ["*.b", "head.w"]) == ["head.w", "body.b", "head.b"]


@pytest.mark.parametrize("pattern", ["tail.*", "n.running_mean", "head"])
def test_a_pattern_without_a_parameter_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"matches no parameter; the model has body\.w, head\.w"):
        personal_names(WHOLE, ["head.*", pattern])


def test_all_layers_cannot_be_personal() -> None:
    with pytest.raises(ConfigError):
        SplitLayout(WHOLE, [tensor.name for tensor in WHOLE.parameters.tensors])


def test_parts_join_to_the_whole() -> None:
    split = SplitLayout(WHOLE, HEAD)
    assert [tensor.name for tensor in split.shared.tensors] == ["body.w", "body.b", "n.running_mean"]
    assert [tensor.name for tensor in split.personal.tensors] == HEAD
    theta = np.arange(WHOLE.size, dtype=np.float32)
    shared, personal = split.split(theta)
    assert shared.tolist() == [0, 1, 2, 3, 4, 5, 12, 13, 16, 17]
    assert personal.tolist() == [6, 7, 8, 9, 10, 11, 14, 15]
    assert (split.join(shared, personal, np.empty_like(theta)) == theta).all()


def test_a_gradient_has_no_running_statistics() -> None:
    shared, personal = SplitLayout(WHOLE, HEAD).split(np.arange(16, dtype=np.float32))
    assert shared.tolist() == [0, 1, 2, 3, 4, 5, 12, 13]
    assert personal.size == 8


def test_both_parts_have_a_start() -> None:
    fillings = (
        Filling(NORMAL, 0, 1), Filling(UNIFORM, -1, 1), Filling(CONSTANT, 0, 0), Filling(CONSTANT, 1, 0),
        Filling(CONSTANT, 0, 0),
    )  # fmt: skip
    split = SplitLayout(WHOLE, HEAD)
    shared, own = split.describe(Start(7, fillings))
    assert shared == Start(7, (fillings[0], fillings[2], fillings[4]))
    assert own.start.tensors == (fillings[1], fillings[3])
    assert own.start.seed != 7
    assert generate(own.start, split.personal)[-2:].tolist() == [1, 1]
    assert Personal.from_msgpack([own.shapes, [own.start.seed, [list(f) for f in own.start.tensors]]]) == own


def test_a_device_puts_running_statistics_last() -> None:
    split = SplitLayout(WHOLE, HEAD)
    whole = whole_layout(split.shared, list(split.personal.shapes()))
    assert {tensor.name for tensor in whole.tensors} == {tensor.name for tensor in WHOLE.tensors}
    assert whole.tensors[-1].name == "n.running_mean"


@pytest.mark.parametrize("value", [None, [], [[], 3], [{}, [1, []]], [[["w", [1]]], [1, []], 2]])
def test_anything_else_is_malformed(value: object) -> None:
    with pytest.raises(Malformed):
        Personal.from_msgpack(value)
