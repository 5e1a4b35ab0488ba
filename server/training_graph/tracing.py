"""A torch module's training step and evaluation as flat graphs of aten operators.

    step(parameters..., buffers..., x, y)        -> (loss, gradients..., new buffers..., right, if known)
    evaluation(parameters..., buffers..., x, y)  -> (loss, output)

x is one tensor or, for a model of several inputs, a tensor for each field. The output is likewise.
All shapes are fixed except the batch's. The trace of the backward pass runs autograd over symbols, so that
everything that autograd can differentiate can be traced.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._decomp import decomposition_table
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from edgeflock.server.training_graph.operators import recurrence
from edgeflock.server.training_graph.operators.decompositions import REPLACEMENTS
from edgeflock.server.training_graph.operators.translations import TRANSLATIONS
from edgeflock.shared.model.fields import Fields, Inputs, arrays_by_name
from edgeflock.shared.model.modules.building import X, arguments_of
from edgeflock.shared.model.torch_module import FlatModule

aten = torch.ops.aten

_ALSO_DECOMPOSED = (
    # ONNX has these with another meaning. torch's translation of nll_loss assumes a total weight of one,
    # its batch norm is the one of evaluation, its safe softmax is not safe. Devices refuse Trilu.
    aten.nll_loss_forward.default,
    aten.nll_loss2d_forward.default,
    aten._safe_softmax.default,
    aten.detach.default,
    aten.tril.default,
    aten.triu.default,
)

_IGNORED = -100
"""The target that torch's cross entropy ignores."""

_NO_CLASS = 1 << 31

_COUNT = "num_batches_tracked"

Trace = Callable[..., tuple[Tensor, ...]]


class Example(NamedTuple):
    """A model and the arguments of its functions on a batch."""

    flat: FlatModule
    arguments: tuple[Tensor, ...]
    """The tensors in the order of the layout and of the base, then x or its fields, then y."""
    fields: tuple[str, ...]
    """The names of x's fields; empty if x is one tensor."""

    @classmethod
    def from_batch(cls, flat: FlatModule, x: Inputs, y: NDArray[np.generic]) -> "Example":
        theta = torch.from_numpy(flat.theta())
        held = [theta[tensor.start : tensor.stop].view(tensor.shape) for tensor in flat.layout.tensors]
        held += (tensor.detach() for tensor in flat.frozen)
        batch = (torch.from_numpy(array) for array in (*arrays_by_name(x).values(), y))
        return cls(flat, (*held, *batch), tuple(x) if isinstance(x, Fields) else ())

    @property
    def own(self) -> int:
        """The number of tensors of the layout and of the base."""
        return len(self.flat.layout.tensors) + len(self.flat.frozen)

    def split(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], X, Tensor]:
        """Split arguments into (tensors of the layout and of the base, x, y)."""
        *front, y = tensors
        own = self.own
        rest = front[own:]
        return front[:own], dict(zip(self.fields, rest, strict=True)) if self.fields else rest[0], y


def training_step(example: Example) -> Trace:
    """The training step of a model as a function."""
    flat = example.flat
    trained = len(flat.layout.parameters.tensors)
    layout = flat.layout
    frozen = [not flat.module.get_parameter(t.name).requires_grad for t in layout.parameters.tensors]

    def step(*tensors: Tensor) -> tuple[Tensor, ...]:
        held, x, y = example.split(tensors)
        parameters = [tensor.detach() for tensor in held[:trained]]
        learning = [
            tensor.requires_grad_() for tensor, never in zip(parameters, frozen, strict=True) if not never
        ]
        buffers = [t.clone() for t in held[trained : len(layout.tensors)]]  # the module writes into them
        output = _call(flat, (*parameters, *buffers, *held[len(layout.tensors) :]), x)
        loss = _loss(flat, output, y, x)
        right = flat.criterion.right(output, y)
        found = iter(torch.autograd.grad(loss, learning, allow_unused=True, materialize_grads=True))
        gradients = (
            torch.zeros_like(tensor) if never else next(found)
            for tensor, never in zip(parameters, frozen, strict=True)
        )
        return (loss.detach(), *gradients, *buffers, *(() if right is None else (right,)))

    return step


def evaluation(example: Example) -> Trace:
    """(loss, output) of a model as a function."""

    def evaluate(*tensors: Tensor) -> tuple[Tensor, ...]:
        held, x, y = example.split(tensors)
        output = _call(example.flat, held, x)
        return _loss(example.flat, output, y, x), *tree_leaves(output)

    return evaluate


def _loss(flat: FlatModule, output: Any, y: Tensor, x: X) -> Tensor:
    if flat.loss.classes is not False and not flat.loss.own and not y.is_floating_point():
        # torch refuses a negative class, but ONNX counts it from the end. Make it an unknown class.
        y = torch.where((y < 0) & (y != _IGNORED), _NO_CLASS, y)
    return flat.criterion(output, y, x)


def _call(flat: FlatModule, tensors: Sequence[Tensor], x: X) -> Any:
    """The module's output with `tensors`, in the order of the layout and of the base, in place of its own.

    Each replaces all places of its tensor (tied weights), but once only. torch would swap a layer with two
    names twice, and leave the symbols of the trace in it.
    """
    own = (flat.module.get_parameter(t.name) for t in flat.layout.parameters.tensors)
    statistics = (flat.module.get_buffer(t.name) for t in flat.layout.tensors if t.buffer)
    replaced = {id(old): new for old, new in zip((*own, *statistics, *flat.frozen), tensors, strict=True)}
    state = {
        f"{path}.{name}" if path else name: replaced[id(tensor)]
        for path, module in flat.module.named_modules()
        for name, tensor in (*module._parameters.items(), *module._buffers.items())
        if id(tensor) in replaced
    }
    return functional_call(flat.module, state, *arguments_of(flat.module, x), tie_weights=False)


def trace(example: Example, function: Trace, *, training: bool) -> GraphModule:
    """`function` as a graph over such arguments. Those after the layout's have any first dimension.

    May raise any exception that the module raises when it is called with symbols instead of numbers.
    """
    environment = ShapeEnv()
    fake = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True)
    own = example.own
    arguments = [fake.from_tensor(tensor, static_shapes=True) for tensor in example.arguments[:own]]
    for batch in example.arguments[own:]:
        sizes = [DimDynamic.DYNAMIC] + [DimDynamic.STATIC] * (batch.dim() - 1)
        context = StatelessSymbolicContext(dynamic_sizes=sizes)  # type: ignore[var-annotated]
        arguments.append(fake.from_tensor(batch, symbolic_context=context, source=ConstantSource("batch")))
    with _traceable(example.flat, training):
        graph: GraphModule = make_fx(function, _decompositions(), tracing_mode="fake")(*arguments)
    return graph


MAX_POOLS = {
    aten.max_pool2d_with_indices.default: aten.max_pool2d_with_indices_backward.default,
    aten.max_pool3d_with_indices.default: aten.max_pool3d_with_indices_backward.default,
}
"""Each max pool with its gradient."""


def unsupported_max_pool(graph: GraphModule) -> str:
    """The max pool whose indices are used for more than its gradient. Empty if there is none.

    No translation computes those indices. An example is "aten.max_pool2d_with_indices.default".
    """
    for forward, backward in MAX_POOLS.items():
        users = (
            user
            for pool in graph.graph.find_nodes(op="call_function", target=forward, sort=False)
            for indices in pool.users
            if indices.args[1] == 1
            for user in indices.users
        )
        if any(user.target is not backward and _is_needed(user) for user in users):
            return str(forward)
    return ""


def _is_needed(node: Node) -> bool:
    return node.op == "output" or any(_is_needed(user) for user in node.users)


@contextmanager
def _traceable(flat: FlatModule, training: bool) -> Iterator[None]:
    """Make the module compute with traceable operators, and count no batches."""
    module = flat.module
    counting = [child._buffers for child in module.modules() if _COUNT in child._buffers]
    counts = [buffers[_COUNT] for buffers in counting]
    was_training = module.training
    flat.set_training(training)
    with ExitStack() as stack:
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(enable_python_dispatcher())
        stack.enter_context(_OnnxEquivalents())
        try:
            for buffers in counting:
                buffers[_COUNT] = None
            yield
        finally:
            for buffers, count in zip(counting, counts, strict=True):
                buffers[_COUNT] = count
            flat.set_training(was_training)


class _OnnxEquivalents(TorchFunctionMode):
    """Replaces recurrent layers and REPLACEMENTS, and drops memory formats, of which ONNX has only one."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result: Any = recurrence.run_recurrent(func, args)
        if result is None and func in REPLACEMENTS:
            result = REPLACEMENTS[func](*args, **(kwargs or {}))
        if result is not None:
            return result
        if func in (Tensor.to, Tensor.contiguous, Tensor.clone):
            kwargs = {name: value for name, value in (kwargs or {}).items() if name != "memory_format"}
            if func is Tensor.to and len(args) == 1 and not kwargs:
                return args[0]
        return func(*args, **(kwargs or {}))


def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Decompositions of backward operators, which ONNX lacks or torch would silently translate wrongly."""
    backward = (
        operator
        for operator in decomposition_table
        if isinstance(operator, torch._ops.OpOverload)
        and operator._schema.name.endswith("_backward")
        and operator not in TRANSLATIONS
    )
    chosen = (*backward, *_ALSO_DECOMPOSED)
    return {op: decomposition_table[op] for op in chosen if op in decomposition_table}
