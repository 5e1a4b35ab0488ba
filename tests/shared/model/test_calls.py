"""Modules and losses with arguments, as one line of text."""

import pytest

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.calls import LONGEST, Call


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("pack:Net", "pack:Net", {}),
        ("pack:Net()", "pack:Net", {}),
        ("pack:Net(width=64)", "pack:Net", {"width": 64}),
        (
            "pack:Net(depths=[2, -2], name='a, b)', rate=1e-3, bias=True, of=None, more={'k': [1]})",
            "pack:Net",
            {"depths": [2, -2], "name": "a, b)", "rate": 1e-3, "bias": True, "of": None, "more": {"k": [1]}},
        ),
        ("mse", "mse", {}),
    ],
)
def test_a_call_is_what_it_says(text: str, name: str, arguments: dict[str, object]) -> None:
    call = Call.parse(text, "model.module")
    assert (call.name, call.arguments) == (name, arguments)
    assert Call.parse(str(call), "model.module") == call
    assert call.is_import_string == (":" in name)


@pytest.mark.parametrize(
    "text",
    [
        "pack:Net(",
        "pack:Net(64)",
        "pack:Net(width=)",
        "pack:Net(width=64) + 1",
        "pack:Net(width=open('x'))",
        "pack:Net(width=__import__('os'))",
        "pack:Net(**{'a': 1})",
        "pack:Net(a=1)(b=2)",
        "pack:Net(a=1, a=2)",
        "pack:Net(a=" + "[" * 2000 + "]" * 2000 + ")",
        "pack:Net(a='" + "x" * LONGEST + "')",
    ],
    ids=range(11),
)
def test_what_is_no_call_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"model.module = .* with plain values"):
        Call.parse(text, "model.module")
