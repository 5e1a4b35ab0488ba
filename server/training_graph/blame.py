"""Find the part of a model that prevents its export, also before torch's exporter takes seconds."""

import re
from collections.abc import Callable
from functools import cache
from operator import getitem
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxscript.function_libs.torch_lib import ops as _operators  # noqa: F401  # fills the registry
from onnxscript.function_libs.torch_lib.registration import default_registry
from torch import Tag, Tensor
from torch._decomp import decomposition_table
from torch._ops import OpOverload
from torch.export import default_decompositions
from torch.fx import GraphModule, Interpreter, Node
from torch.onnx import ONNXProgram
from torch.onnx._internal.exporter._torchlib._torchlib_registry import get_torchlib_ops
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.module_tracker import ModuleTracker

from edgeflock.server.training_graph.gradient_check import TOLERANCE, feed, session_for
from edgeflock.server.training_graph.operators.translations import TRANSLATIONS
from edgeflock.server.training_graph.tracing import Example
from edgeflock.shared.model.fields import Fields
from edgeflock.shared.model.modules.building import apply

_OUTSIDE = "Global"
"""The name of torch's tracker for what no module runs."""


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


def operator_in(error: BaseException) -> str:
    """The aten operator that an exporter's error names, e.g. "aten.conv3d.default". Empty if none."""
    seen: BaseException | None = error
    while seen is not None:
        named = re.search(r"op='([\w:.]+)', overload='(\w+)'|torch\.ops\.(aten\.\w+)\.(\w+)", str(seen))
        if named:
            first, second, third, fourth = named.groups()
            return f"{first or third}.{second or fourth}"
        seen = seen.__cause__
    return ""


def module_that_calls(operator: str, example: Example) -> str:
    """The innermost module that runs `operator` in either pass, or the loss.

    An example is "layers.3 (MaxPool3d)".
    """
    flat, (_, x, y) = example.flat, example.split(example.arguments)
    tracker = ModuleTracker()
    with tracker, _Watch(tracker, operator) as watch:
        flat.set_training(True)
        flat.criterion(apply(flat.module, x), y, x).backward()  # type: ignore[no-untyped-call]
    if not watch.path:
        return "it"
    if watch.path == _OUTSIDE:
        return "the loss"
    _, _, name = watch.path.partition(".")
    return f"{name or 'it'} ({type(flat.module.get_submodule(name)).__name__})"


def first_difference(program: ONNXProgram, example: Example) -> str:
    """The first operator of an exported, unoptimised program whose value in ONNX differs from torch's.

    If all values that do not depend on random numbers agree, it is the operators that draw them. Without
    those, it is empty, and the trace differs from what the module computes.
    """
    traced = program.exported_program
    assert traced is not None
    wanted: dict[str, tuple[Node, NDArray[np.generic]]] = {}
    drawn: dict[Node, None] = {}  # what depends on random numbers, in order

    class Remember(Interpreter):
        def run_node(self, n: Node) -> Any:
            value = super().run_node(n)
            if _draws(n) or "empty" in str(n.target) or any(source in drawn for source in n.all_input_nodes):
                drawn[n] = None
            elif n.op == "call_function" and isinstance(value, Tensor):
                wanted[n.name] = n, value.detach().numpy().copy()
            return value

    Remember(traced.graph_module).run(*traced._graph_module_flat_inputs(example.arguments, {}))
    model = program.model_proto
    # The exporter names values after their nodes, but outputs as its caller named them.
    pairs = zip(traced.graph_signature.user_outputs, model.graph.output, strict=True)
    shown = {str(name): output.name for name, output in pairs}
    made = {name for node in model.graph.node for name in node.output}
    names = {name: shown.get(name, name) for name in wanted if shown.get(name, name) in made}
    outputs = {output.name for output in model.graph.output}
    model.graph.output.extend(
        onnx.ValueInfoProto(name=value) for value in names.values() if value not in outputs
    )
    session = session_for(model.SerializeToString())
    held, x, y = example.split(example.arguments)
    own = held[: len(example.flat.layout.tensors)]
    theta = np.concatenate([tensor.numpy().ravel() for tensor in own])
    inputs = Fields({name: one.numpy() for name, one in x.items()}) if isinstance(x, dict) else x.numpy()
    fed = feed(session, example.flat, theta, inputs, y.numpy())
    for name, found in zip(names, session.run([*names.values()], fed), strict=True):
        node, value = wanted[name]
        size = max(float(np.abs(value).max(initial=0)), 1e-6)
        if found.shape != value.shape or not np.allclose(found, value, rtol=0, atol=TOLERANCE * size):
            return _operator(node)
    return " or ".join(dict.fromkeys(_operator(node) for node in drawn if _draws(node)))


def _draws(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and Tag.nondeterministic_seeded in node.target.tags


def _operator(node: Node) -> str:
    """The operator that computes the node, also if it is one of several results."""
    made_by = node.args[0] if node.target is getitem else node
    assert isinstance(made_by, Node)
    return str(made_by.target)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, tracker: ModuleTracker, operator: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tracker = tracker
        self._operator = operator
        self.path = ""
        """The path of the first module that called it, starting with the root's class."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if not self.path and str(func) == self._operator:
            self.path = max(self._tracker.parents, key=len)
        return func(*args, **(kwargs or {}))
