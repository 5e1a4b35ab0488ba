"""Which backend trains here."""

import importlib.util
from typing import Any

import pytest
from pydantic import ValidationError

from edgeflock.client.run import choosing
from edgeflock.client.run.choosing import choose
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.client import ClientSettings

ZOO, OWN = "edgeflock.client.zoo:PaperCNN", "theirs:Net"
BOTH, NEITHER = ("onnxruntime", "torch"), ()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the engines that can be found."""
    names: set[str] = set()

    def find_spec(name: str) -> Any:
        return importlib.util.find_spec("json") if name in names else None

    monkeypatch.setattr(choosing, "find_spec", find_spec)
    return names


# The model of the run, client.model, what is installed -> what trains under auto.
AUTO: list[tuple[str, str, tuple[str, ...], str]] = [
    (ZOO, "", BOTH, "torch"),
    (ZOO, "", ("torch",), "torch"),
    (ZOO, "", ("onnxruntime",), "onnx"),
    (ZOO, OWN, ("onnxruntime",), "onnx"),
    (OWN, "", BOTH, "onnx"),
    (OWN, OWN, BOTH, "torch"),
    (OWN, OWN, ("torch",), "torch"),
    (OWN, "", ("onnxruntime",), "onnx"),
]


@pytest.mark.parametrize(("model", "allowed", "names", "chosen"), AUTO)
def test_auto_is_torch_where_it_may_build_the_model_else_onnx(
    model: str, allowed: str, names: tuple[str, ...], chosen: str, installed: set[str]
) -> None:
    installed.update(names)
    assert choose(ClientSettings(model=allowed), model) == chosen


@pytest.mark.parametrize("model", [ZOO, OWN])
def test_onnx_may_train_any_model(model: str, installed: set[str]) -> None:
    installed.update(BOTH)
    assert choose(ClientSettings(backend="onnx"), model) == "onnx"


@pytest.mark.parametrize(("model", "allowed"), [(ZOO, ""), (OWN, OWN), (ZOO, OWN)])
def test_torch_if_asked_for(model: str, allowed: str, installed: set[str]) -> None:
    installed.update(BOTH)
    assert choose(ClientSettings(backend="torch", model=allowed), model) == "torch"


def test_a_pinned_graph_is_for_onnx(installed: set[str]) -> None:
    installed.update(BOTH)
    digest = "0123456789abcdef" * 4
    assert choose(ClientSettings(graph_digest=digest), ZOO) == "onnx"
    with pytest.raises(ConfigError, match="client.graph_digest pins a graph, and .* 'torch' takes none"):
        choose(ClientSettings(graph_digest=digest, backend="torch"), ZOO)


def test_an_accelerator_is_torchs_or_cuda(installed: set[str]) -> None:
    installed.update(BOTH)
    assert choose(ClientSettings(accelerator="cuda", backend="torch"), ZOO) == "torch"
    assert choose(ClientSettings(accelerator="cuda", backend="onnx"), ZOO) == "onnx"
    with pytest.raises(ConfigError, match="client.accelerator = 'mps' is of torch, and onnx trains here"):
        choose(ClientSettings(accelerator="mps", backend="onnx"), ZOO)
    with pytest.raises(ValidationError, match="accelerator"):
        ClientSettings(accelerator="quantum")


@pytest.mark.parametrize(
    ("model", "loss", "allowed", "chosen"),
    [
        ("theirs:Net(width=64)", "mse", "theirs:Net(width=64)", "torch"),
        ("theirs:Net(width=64)", "mse", "theirs:Net", "onnx"),
        ("theirs:Net", "mse", "theirs:Net(width=64)", "onnx"),
        (ZOO + "(width=64)", "mse", "", "onnx"),
        (ZOO, "huber(delta=2)", "", "torch"),
        ("theirs:Net", "theirs:loss", "theirs:Net", "torch"),
        ("theirs:Net", "theirs:loss(factor=2)", "theirs:Net", "torch"),
        ("theirs:Net", "theirs.more:loss", "theirs:Net", "onnx"),
        ("theirs:Net", "os:system", "theirs:Net", "onnx"),
        (ZOO, "edgeflock.client.zoo:PaperCNN", "", "onnx"),
    ],
)
def test_what_a_server_may_have_called(
    model: str, loss: str, allowed: str, chosen: str, installed: set[str]
) -> None:
    """Whoever asks for torch all the same is told what the server wants."""
    installed.update(BOTH)
    assert choose(ClientSettings(model=allowed), model, loss=loss) == chosen
    if chosen == "onnx":
        with pytest.raises(ConfigError, match="asks to train"):
            choose(ClientSettings(model=allowed, backend="torch"), model, loss=loss)


WRONG: list[tuple[str, str, tuple[str, ...], list[str]]] = [
    ("auto", ZOO, NEITHER, ["pip install '", "[onnx]'", "[torch]'"]),
    ("onnx", ZOO, ("torch",), ["client.backend = 'onnx'", "pip install '", "[onnx]'"]),
    ("torch", ZOO, ("onnxruntime",), ["client.backend = 'torch'", "pip install '", "[torch]'"]),
    ("torch", OWN, BOTH, [f"asks to train {OWN}", f"client.model={OWN}", "client.backend=onnx"]),
    ("auto", OWN, ("torch",), [f"asks to train {OWN}", f"client.model={OWN}", "client.backend=onnx"]),
]


@pytest.mark.parametrize(("backend", "model", "names", "said"), WRONG)
def test_what_cannot_be_names_the_remedy(
    backend: Any, model: str, names: tuple[str, ...], said: list[str], installed: set[str]
) -> None:
    installed.update(names)
    with pytest.raises(ConfigError) as raised:
        choose(ClientSettings(backend=backend), model)
    for part in said:
        assert part in str(raised.value)
