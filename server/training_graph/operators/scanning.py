"""A step of cells.py over all time steps: an operator of torch, and its ONNX translation, a Scan.

For any length of a sequence, the trace has one node for it and the ONNX graph one body.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir as ir
import torch
from onnx_ir.tape import Tape
from onnxscript import opset18 as op
from torch import Tensor

from edgeflock.server.training_graph.operators.cells import STEPS
from edgeflock.server.training_graph.operators.onnx_values import Value

_BODY = "body/"
"""The prefix of names in a body, and of no others."""


class _Torch:
    """cells.Algebra for tensors."""

    def sigmoid(self, x: Tensor) -> Tensor:
        return x.sigmoid()

    def tanh(self, x: Tensor) -> Tensor:
        return x.tanh()

    def relu(self, x: Tensor) -> Tensor:
        return x.relu()

    def split(self, x: Tensor, parts: int) -> Sequence[Tensor]:
        return x.chunk(parts, 1)

    def concat(self, *parts: Tensor) -> Tensor:
        return torch.cat(parts, 1)

    def product(
        self, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, transposed: bool = False
    ) -> Tensor:
        weight = weight.t() if transposed else weight
        return x @ weight if bias is None else torch.addmm(bias, x, weight)


@torch.library.custom_op("edgeflock::scan", mutates_args=())
def scan(
    step: str, states: Sequence[Tensor], scanned: Sequence[Tensor], shared: Sequence[Tensor], backwards: bool
) -> list[Tensor]:
    """The last states, then each result of `step` at all times, in the order of time.

    `scanned` are [T, b, ...]; each step gets its own entry. With `backwards` the last one comes first.
    """
    results: list[Sequence[Tensor]] = []
    last: Sequence[Tensor] = [state.clone() for state in states]
    for inputs in zip(*(tensor.flip(0) if backwards else tensor for tensor in scanned), strict=True):
        last, found = STEPS[step](_Torch(), last, inputs, shared)
        results.append(found)
    stacked = [torch.stack(each) for each in zip(*results, strict=True)]
    return [*last, *(each.flip(0) if backwards else each for each in stacked)]


@scan.register_fake
def _scan_fake(
    step: str, states: Sequence[Tensor], scanned: Sequence[Tensor], shared: Sequence[Tensor], backwards: bool
) -> list[Tensor]:
    last, found = STEPS[step](_Torch(), states, [tensor[0] for tensor in scanned], shared)
    steps = scanned[0].shape[0]
    return [
        *(torch.empty_like(state) for state in last),
        *(each.new_empty((steps, *each.shape)) for each in found),
    ]


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A value [b, width] in a body under construction."""

    value: ir.Value
    width: int
    tape: Tape

    def __add__(self, other: "_Recorded") -> "_Recorded":
        return self._with("Add", other)

    def __sub__(self, other: "_Recorded") -> "_Recorded":
        return self._with("Sub", other)

    def __mul__(self, other: "_Recorded") -> "_Recorded":
        return self._with("Mul", other)

    def _with(self, operator: str, other: "_Recorded") -> "_Recorded":
        return _Recorded(self.tape.op(operator, [self.value, other.value]), self.width, self.tape)


class _Onnx:
    """cells.Algebra for values of a body."""

    def sigmoid(self, x: _Recorded) -> _Recorded:
        return _Recorded(x.tape.op("Sigmoid", [x.value]), x.width, x.tape)

    def tanh(self, x: _Recorded) -> _Recorded:
        return _Recorded(x.tape.op("Tanh", [x.value]), x.width, x.tape)

    def relu(self, x: _Recorded) -> _Recorded:
        return _Recorded(x.tape.op("Relu", [x.value]), x.width, x.tape)

    def split(self, x: _Recorded, parts: int) -> Sequence[_Recorded]:
        attributes = {"axis": 1, "num_outputs": parts}
        values = x.tape.op_multi_out("Split", [x.value], attributes, num_outputs=parts)
        return [_Recorded(value, x.width // parts, x.tape) for value in values]

    def concat(self, *parts: _Recorded) -> _Recorded:
        tape = parts[0].tape
        together = tape.op("Concat", [part.value for part in parts], {"axis": 1})
        return _Recorded(together, sum(part.width for part in parts), tape)

    def product(
        self, x: _Recorded, weight: _Recorded, bias: _Recorded | None = None, *, transposed: bool = False
    ) -> _Recorded:
        given = [x.value, weight.value, *([] if bias is None else [bias.value])]
        width = weight.value.shape[0] if transposed else weight.width  # type: ignore[index]
        return _Recorded(x.tape.op("Gemm", given, {"transB": int(transposed)}), int(width), x.tape)  # type: ignore[arg-type]


def to_onnx(
    step: str, states: Sequence[Value], scanned: Sequence[Value], shared: Sequence[Value], backwards: bool
) -> tuple[Value, ...]:
    """The translation of `scan`. The body reads the `shared` values from the outer graph."""
    tape = Tape()
    ports = [
        *(_port(f"{_BODY}state_{number}", state.shape, state) for number, state in enumerate(states)),
        *(_port(f"{_BODY}at_{number}", value.shape[1:], value) for number, value in enumerate(scanned)),
    ]
    widths = [int(value.shape[-1]) for value in (*states, *scanned)]
    recorded = [_Recorded(port, width, tape) for port, width in zip(ports, widths, strict=True)]
    shared_values = [_Recorded(value, int(value.shape[-1]), tape) for value in shared]
    last, found = STEPS[step](_Onnx(), recorded[: len(states)], recorded[len(states) :], shared_values)
    outputs: list[ir.Value] = []
    for result in (*last, *found):
        # Each output needs a name of its own.
        value = tape.op("Identity", [result.value]) if result.value in outputs else result.value
        value.type, value.shape = states[0].type, ir.Shape([states[0].shape[0], result.width])
        outputs.append(value)
    for number, value in enumerate(value for node in tape.nodes for value in node.outputs):
        value.name = f"{_BODY}{number}"
    body: Any = ir.Graph(ports, outputs, nodes=tape.nodes, name=step)
    first = op.Scan(
        *states,
        *scanned,
        body=body,
        num_scan_inputs=len(scanned),
        scan_input_directions=[int(backwards)] * len(scanned),
        scan_output_directions=[int(backwards)] * len(found),
    )
    node = (first[0] if isinstance(first, Sequence) else first).producer()
    node.resize_outputs(len(outputs))
    return tuple(node.outputs)


def make_names_unique(graph: onnx.GraphProto) -> None:
    """Give the values of a graph's bodies names that no other body has."""
    bodies = (attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g"))
    for number, body in enumerate(bodies):
        for named in (*body.input, *body.output):
            named.name = _body_name(number, named.name)
        for node in body.node:
            node.input[:] = [_body_name(number, name) for name in node.input]
            node.output[:] = [_body_name(number, name) for name in node.output]


def _body_name(body: int, name: str) -> str:
    return f"scan_{body}/{name.removeprefix(_BODY)}" if name.startswith(_BODY) else name


def _port(name: str, shape: Sequence[Any], like: Value) -> ir.Value:
    return ir.Value(name=name, shape=ir.Shape(shape), type=like.type)
