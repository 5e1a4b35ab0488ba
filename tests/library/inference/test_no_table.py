"""Models that give no table: a language model, which Python loads, and arrays without a module."""

from pathlib import Path

import numpy as np
import pytest
import torch

from edgeflock.inference.predicting import load, opened
from edgeflock.shared.artifacts import ModelInfo, safetensors_file
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.torch_module import FlatModule

PATH = "edgeflock.client.zoo:LanguageModel(vocabulary=30, width=16, blocks=1, heads=2, context=8)"


def test_predictions_of_tokens_have_no_place_in_a_table(tmp_path: Path) -> None:
    flat, file = FlatModule(PATH, "next_token"), tmp_path / "model.safetensors"
    info = ModelInfo(model=PATH, layout=flat.layout, run="00", version=1, loss="next_token")
    file.write_bytes(safetensors_file.encode(info, flat.theta(), flat.extra_state()))
    with pytest.raises(ConfigError, match=r"module\(\)\.logits\(tokens\)"):
        opened(file)
    module = load(file).module()
    assert module.logits(torch.tensor([[1, 2, 3]])).shape == (1, 3, 30)  # type: ignore[operator]


def test_arrays_without_a_module_compute_nothing(tmp_path: Path) -> None:
    info = ModelInfo(
        model="arrays:initial.npz", layout=Layout.from_shapes([("w", (2,))]), run="00", version=1
    )
    file = tmp_path / "model.safetensors"
    file.write_bytes(safetensors_file.encode(info, np.ones(2, np.float32)))
    with pytest.raises(ConfigError, match="arrays of a run without a module"):
        opened(file)
