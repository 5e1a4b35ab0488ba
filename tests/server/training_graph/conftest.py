"""What torch's exporter reads anew for each of two graphs a model is read once for all of them here."""

from collections.abc import Iterator
from copy import copy
from functools import cache
from typing import Any

import pytest
from torch.onnx._internal.exporter._registration import ONNXRegistry


@pytest.fixture(scope="session", autouse=True)
def torch_reads_its_translations_once() -> Iterator[None]:
    """A third of the time that a small model's export takes."""
    read = cache(ONNXRegistry.from_torchlib)

    def from_torchlib(**settings: Any) -> ONNXRegistry:
        mine = copy(read(**settings))
        mine.functions = {target: [*translations] for target, translations in mine.functions.items()}
        return mine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(from_torchlib))
        yield
