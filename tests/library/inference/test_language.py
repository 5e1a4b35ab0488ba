"""A language model is loaded in Python; a table of predictions is refused."""

from pathlib import Path

import pytest
import torch

from edgeflock.inference.predicting import load, opened
from edgeflock.shared.artifacts import ModelInfo, safetensors_file
from edgeflock.shared.errors import ConfigError
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
