"""Finds operators without a translation in a traced graph, before torch's exporter takes seconds."""

from functools import cache

from onnxscript.function_libs.torch_lib import ops as _  # noqa: F401  # fills the registry
from onnxscript.function_libs.torch_lib.registration import default_registry
from torch._decomp import decomposition_table
from torch._ops import OpOverload
from torch.export import default_decompositions
from torch.fx import GraphModule
from torch.onnx._internal.exporter._torchlib._torchlib_registry import get_torchlib_ops

from edgeflock.server.training_graph.operators.translations import TRANSLATIONS


def first_untranslated(graph: GraphModule) -> str:
    """The first operator (e.g. "aten.max_pool3d_with_indices.default") without translation or decomposition.

    Empty if there is none. The exporter itself refuses unknown parts of a decomposition.
    """
    for node in graph.graph.nodes:
        operator = node.target
        if node.users and isinstance(operator, OpOverload) and not _is_known(operator):
            return str(operator)
    return ""


def _is_known(operator: OpOverload[..., object]) -> bool:
    return (
        operator in TRANSLATIONS
        or operator in decomposition_table
        or operator in _decomposed()
        or operator in _torch_translations()
        or operator.name() in default_registry  # type: ignore[no-untyped-call]
        or operator._schema.is_mutable
        or operator._can_decompose()
    )


@cache
def _decomposed() -> frozenset[object]:
    return frozenset(default_decompositions())


@cache
def _torch_translations() -> frozenset[object]:
    return frozenset(meta.fx_target for meta in get_torchlib_ops())
