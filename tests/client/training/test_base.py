"""What a hostile server may say of a frozen base and its adapters."""

from dataclasses import replace
from typing import Any

import pytest

from edgeflock.client.training.terms import layout_of
from edgeflock.shared.errors import Malformed, ServerAtFault
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.lora import Base
from edgeflock.shared.model.personal import Personal
from edgeflock.shared.model.start import CONSTANT, Filling, Start
from tests.client.training.fakes import WELCOME

SHAPES: list[Any] = [["body.weight", [6, 4]], ["body.bias", [6]], ["norm.running_mean", [6], True]]
ADAPTERS: list[Any] = [["body.lora_A", [2, 4]], ["body.lora_B", [6, 2]]]
BASE = Base(SHAPES, bytes(32), 2.0, False)
TUNED = replace(WELCOME, layout=ADAPTERS, base=BASE)
OWN = Personal([["head", [2]]], Start(1, (Filling(CONSTANT, 1.0, 0.0),)))


def test_a_valid_one_is_taken() -> None:
    layout = layout_of(TUNED, 1 << 20)
    assert layout == Layout.from_shapes(ADAPTERS)
    lora = BASE.lora(layout)
    assert (lora.rank, lora.alpha, lora.targets, lora.scale) == (2, 4.0, ("body",), 2.0)
    assert BASE.size == 4 * 36
    assert BASE._replace(int8=True).size == 4 * (6 + 6 + 6) + 24
    assert BASE._replace(int8=True).lora(layout).int8


@pytest.mark.parametrize(
    "wrong",
    [
        {"layout": [["body.lora_A", [0, 4]], ["body.lora_B", [6, 0]]]},
        {"layout": [["body.lora_A", []], ["body.lora_B", [6, 2]]]},
        {"layout": [["body.lora_A", [2, 4]]]},
        {"layout": [["body.lora_B", [6, 2]], ["body.lora_A", [2, 4]]]},
        {"layout": [["head.lora_A", [2, 4]], ["head.lora_B", [6, 2]]]},
        {"layout": [["body.lora_A", [2, 5]], ["body.lora_B", [6, 2]]]},
        {"layout": [["body.lora_A", [2, 4]], ["body.lora_B", [6, 3]]]},
        {"layout": [*ADAPTERS, ["body.bias", [6]]]},
        {"base": BASE._replace(shapes=[["body.weight", [1 << 40, 4]]])},
        {"base": BASE._replace(shapes=[*SHAPES, ["more", [1 << 20], True]])},
        {"base": BASE._replace(shapes=["body"])},
        {"base": BASE._replace(shapes=[])},
        {"base": BASE._replace(shapes=[*SHAPES[:2], SHAPES[0]])},
        {"personal": OWN},
    ],
)
def test_a_hostile_welcome_is_the_servers_fault(wrong: dict[str, Any]) -> None:
    with pytest.raises(ServerAtFault):
        layout_of(replace(TUNED, **wrong), 1 << 20)


@pytest.mark.parametrize(
    "wrong", [None, [], [SHAPES, bytes(31), 2.0, False], [SHAPES, bytes(32), 0.0, False],
              [SHAPES, bytes(32), float("nan"), False], [SHAPES, bytes(32), float("inf"), False],
              [SHAPES, bytes(32), -1.0, False], [SHAPES, "digest", 2.0, False], [{}, bytes(32), 2.0, False],
              [SHAPES, bytes(32), 2.0, 1], [SHAPES, bytes(32), 2.0]]
)  # fmt: skip
def test_anything_else_is_malformed(wrong: Any) -> None:
    with pytest.raises(Malformed, match="base must"):
        Base.from_msgpack(wrong)
