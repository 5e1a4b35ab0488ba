"""Graphs of models of several inputs, with losses of their own, as devices run them."""

import numpy as np
import pytest

from edgeflock.client.backends.onnx import OnnxBackend
from edgeflock.client.backends.torch import TorchBackend
from edgeflock.server.training_graph.export import export_model
from edgeflock.server.training_graph.gradient_check import session_for
from edgeflock.shared.errors import BadGraph, ConfigError
from edgeflock.shared.graphs.reading import read
from edgeflock.shared.model.fields import Fields
from tests.shared.model.test_own_models import houses

MODELS = "tests.shared.model.test_own_models:"


@pytest.mark.slow
def test_a_device_without_torch_trains_on_fields_as_one_with_it() -> None:
    model, loss = MODELS + "House", MODELS + "weighed(factor=3)"
    x, y = houses(8)
    graphs = export_model(model, loss, x, y)
    ports = [port.name for port in read(graphs.step).inputs]
    assert ports == ["theta/towns.weight", "theta/head.weight", "theta/head.bias", "x/size", "x/town", "y"]
    torch = TorchBackend(model, loss)
    onnx = OnnxBackend(graphs.step, torch.layout)
    theta = np.random.default_rng(2).standard_normal(torch.layout.size).astype(np.float32)
    for size in (1, 5):
        some = x.rows(slice(size))
        ours, theirs = onnx.gradient(theta, some, y[:size]), torch.gradient(theta, some, y[:size])
        assert ours.loss == pytest.approx(theirs.loss, rel=1e-5)
        np.testing.assert_allclose(ours.gradient, theirs.gradient, rtol=1e-4, atol=1e-6)
        assert ours.right is None
    judged = session_for(graphs.evaluation)
    assert [output.name for output in judged.get_outputs()] == ["loss", "output"]
    with pytest.raises(ConfigError, match=r"asks for \['x/size', 'x/town'\], the data have \['x', 'y'\]"):
        onnx.gradient(theta, np.zeros((2, 2), np.float32), y[:2])
    with pytest.raises(BadGraph, match="of memory"):
        OnnxBackend(graphs.step, torch.layout, memory=1)
    with pytest.raises(ConfigError, match="cannot train on inputs size"):
        onnx.gradient(theta, Fields({"size": x["size"][:, :1], "town": x["town"]}), y)
