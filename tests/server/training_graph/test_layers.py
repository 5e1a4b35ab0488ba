"""The table in docs/onnx.md is what the export does: all that is refused is, and of the rest a sample here.

All of the rest with -m long. With EDGEFLOCK_REDRAW=1 in the environment the table is written anew.
"""

import os
import re
from pathlib import Path

import pytest

from edgeflock.server.training_graph.export import export_model
from edgeflock.shared.errors import NotExportable
from tests.server.training_graph.layers import KINDS, LAYERS

DOCUMENT = Path(__file__).parents[3] / "docs" / "onnx.md"
TABLE = re.compile(r"(?<=<!-- layers -->\n).*?(?=<!-- end of layers -->)", re.DOTALL)

EXPORTED = [name for name, layer in LAYERS.items() if not layer.refused]
REFUSED = [name for name, layer in LAYERS.items() if layer.refused]
SAMPLE = {"MaxPool3d"}


def table() -> str:
    rows = ["| | exported | refused |", "|---|---|---|"]
    for kind, layers in KINDS.items():
        exported = ", ".join(name for name, layer in layers.items() if not layer.refused)
        refused = ", ".join(f"{name} (`{layer.refused}`)" for name, layer in layers.items() if layer.refused)
        rows.append(f"| {kind} | {exported} | {refused} |")
    return "\n".join((*rows, ""))


def test_the_table_in_the_documentation_is_of_today() -> None:
    text = DOCUMENT.read_text()
    if os.environ.get("EDGEFLOCK_REDRAW"):
        DOCUMENT.write_text(text := TABLE.sub(lambda _: table(), text))
    (found,) = TABLE.findall(text)
    assert found == table(), "EDGEFLOCK_REDRAW=1 writes it anew"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.long) for name in EXPORTED]
)
def test_a_layer_exports(name: str) -> None:
    """And has been compared with autograd by then."""
    layer = LAYERS[name]
    assert export_model(name, layer.loss, *layer.batch(), make=layer.make).step


@pytest.mark.parametrize("name", REFUSED)
def test_a_layer_is_refused_by_name_before_torch_exports(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its exporter takes seconds to find out."""

    def never(*arguments: object, **settings: object) -> None:
        raise AssertionError("torch's exporter ran")

    monkeypatch.setattr("torch.export.export", never)
    layer = LAYERS[name]
    who = "the loss" if name in KINDS["losses"] else r"layer \(\w+\)"
    with pytest.raises(NotExportable, match=f"{who} uses {layer.refused}, which has no translation to ONNX"):
        export_model(name, layer.loss, *layer.batch(), make=layer.make)
