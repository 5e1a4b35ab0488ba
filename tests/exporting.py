"""Imported, torch's exporter reads once in a process what it else reads for each of a model's two graphs.

That is a third of the time that a small model's export takes.
"""

from copy import copy
from functools import cache
from typing import Any

from torch.onnx._constants import ONNX_DEFAULT_OPSET
from torch.onnx._internal.exporter._registration import ONNXRegistry

from edgeflock.server.training_graph import export  # noqa: F401  imported before processes are forked

_read = cache(ONNXRegistry.from_torchlib)


def _from_torchlib(**settings: Any) -> ONNXRegistry:
    mine = copy(_read(**settings))
    mine.functions = {target: [*translations] for target, translations in mine.functions.items()}
    return mine


setattr(ONNXRegistry, "from_torchlib", staticmethod(_from_torchlib))  # noqa: B010  mypy takes it for a method
_read(opset_version=ONNX_DEFAULT_OPSET)
