"""Checks of a server's training step or evaluation: it has this layout, and the device has memory for it."""

from collections.abc import Mapping
from hashlib import sha256

from edgeflock.shared.errors import BadGraph
from edgeflock.shared.graphs.footprint import footprint
from edgeflock.shared.graphs.frozen import freeze
from edgeflock.shared.graphs.graph import FLOAT, INT8, INT64, Graph, GraphConstant, Port
from edgeflock.shared.graphs.reading import read
from edgeflock.shared.graphs.writing import write
from edgeflock.shared.model.base_file import BaseFile
from edgeflock.shared.model.layout import Layout, Tensor

RIGHT = "right"
"""An optional output besides those of the layout: the part of the predictions that are right."""

OUTPUT = "output"
"""The output of the model, in the graph of an evaluation."""

MAX_WORK = 1 << 44
"""The most multiplications of a step. A Raspberry Pi 4 takes an hour for them. A loop is as long as its
arguments, so a step ends."""

_TRIAL_SAMPLES = 2
"""The samples of the batch with which a graph is measured before use."""


class StepGraph:
    """A graph that computes a training step of a layout, or its outputs, and nothing else."""

    def __init__(
        self,
        octets: bytes,
        layout: Layout,
        memory: int,
        *,
        base: BaseFile | None = None,
        predicts: bool = False,
    ) -> None:
        """Read and check `octets`: a training step, or an evaluation if it `predicts`. Raises BadGraph.

        A step may take `memory` bytes. With adapters, `layout` has these, and `base` what is frozen.
        """
        self.graph = read(octets)
        self._memory, self._base = memory, base
        self._octets = write(self.graph)
        wanted = {"loss": ()} if predicts else _expected_outputs(self.graph, layout)
        held = (*layout.tensors, *(() if base is None else base.layout.tensors))
        theta = {f"theta/{tensor.name}": tensor.shape for tensor in held}
        _check_ports(self.graph, theta, wanted, predicts=predicts)
        self._measured: dict[tuple[tuple[int, ...], ...], int] = {}
        self._ports = {port.name: port for port in self.graph.inputs}
        batch = {
            name: (_TRIAL_SAMPLES, *(size for size in port.shape if isinstance(size, int)))
            for name, port in self._ports.items()
            if _is_batch_input(name)
        }
        self._check_outputs(wanted, batch)
        self.measure(batch)

    @property
    def digest(self) -> str:
        """64 hexadecimal digits that identify the graph."""
        return sha256(self._octets).hexdigest()

    def rewritten(self) -> bytes:
        """Return the bytes that the runtime reads instead of those from the server.

        The frozen tensors are constants in the file of the base.
        """
        if self._base is None:
            return self._octets
        file, parts = self._base.path.name, self._base.parts
        places = {
            f"theta/{part.name}": GraphConstant(
                INT8 if part.int8 else FLOAT, part.shape, b"", (file, part.start, part.size)
            )
            for part in parts
        }
        return write(freeze(self.graph, places))

    def measure(self, batch: Mapping[str, tuple[int, ...]]) -> int:
        """Return the bytes of a step's tensors for a batch whose inputs have these shapes.

        Raises BadGraph if that is more than the device has. A batch without the shapes of the graph's inputs
        counts 0: the runtime reports the error.
        """
        shapes = tuple(batch.values())
        names = [name for name in self._ports if _is_batch_input(name)]
        if shapes in self._measured or not all(
            name in batch and _fits(self._ports[name], batch[name]) for name in names
        ):
            return self._measured.get(shapes, 0)
        cost = footprint(self.graph, {**self._theta(), **batch})
        samples = shapes[0][0]
        if cost.octets > self._memory:
            raise BadGraph(
                f"a step on {samples} samples takes {_mebibytes(cost.octets)} of memory, and this device has "
                f"{_mebibytes(self._memory)} for it; reduce local.batch on the server"
            )
        if cost.work > MAX_WORK:
            raise BadGraph(
                f"a step on {samples} samples takes 2^{cost.work.bit_length() - 1} operations; at most "
                f"2^{MAX_WORK.bit_length() - 1} are taken"
            )
        self._measured[shapes] = cost.octets
        return cost.octets

    def _theta(self) -> dict[str, tuple[int, ...]]:
        named = (port for port in self.graph.inputs if port.name.startswith("theta/"))
        return {port.name: tuple(int(size) for size in port.shape) for port in named}

    def _check_outputs(
        self, wanted: Mapping[str, tuple[int, ...]], batch: Mapping[str, tuple[int, ...]]
    ) -> None:
        outputs = footprint(self.graph, {**self._theta(), **batch}).outputs
        for name, shape in wanted.items():
            if (outputs[name].type, outputs[name].shape) != (FLOAT, shape):
                raise BadGraph(
                    f"it gives {name} as {list(outputs[name].shape)} of type {outputs[name].type}, "
                    f"the layout has float {list(shape)}"
                )


def outputs_of(layout: Layout) -> dict[str, tuple[int, ...]]:
    """The outputs of a training step -> their shapes, in order."""
    return {"loss": (), **{output_of(tensor): tensor.shape for tensor in layout.tensors}}


def _expected_outputs(graph: Graph, layout: Layout) -> dict[str, tuple[int, ...]]:
    """Return `outputs_of`, and RIGHT if `graph` has it."""
    has_accuracy = any(port.name == RIGHT for port in graph.outputs)
    return {**outputs_of(layout), **({RIGHT: ()} if has_accuracy else {})}


def output_of(tensor: Tensor) -> str:
    """The name of the output with a tensor's gradient, or with a buffer's new value."""
    return f"{'buffer' if tensor.buffer else 'gradient'}/{tensor.name}"


def _check_ports(
    graph: Graph,
    theta: Mapping[str, tuple[int, ...]],
    wanted: Mapping[str, tuple[int, ...]],
    *,
    predicts: bool,
) -> None:
    """Raise BadGraph unless inputs and outputs have the names and shapes of a step.

    `theta` are the inputs besides the batch, `wanted` the outputs. If it `predicts`, those of the model are
    also allowed.
    """
    inputs = {port.name: port for port in graph.inputs}
    fields = [name for name in inputs if name.startswith("x/")]
    batch: list[tuple[str, tuple[int, ...]]] = [(name, (FLOAT, INT64)) for name in fields] or [
        ("x", (FLOAT,))
    ]
    for name, kinds in (*batch, ("y", (FLOAT, INT64))):
        port = inputs.pop(name, None)
        if port is None:
            raise BadGraph(f"it asks for no {name}")
        if port.type not in kinds or [type(size) for size in port.shape] != [
            str,
            *[int] * (len(port.shape) - 1),
        ]:
            raise BadGraph(f"it takes {name} as {list(port.shape)} of type {port.type}, which is no batch")
    for name, port in inputs.items():
        if name not in theta:
            raise BadGraph(f"it asks for {name}, which the layout does not have")
        _check_port("takes", port, theta[name])
    outputs = {port.name: port for port in graph.outputs}
    for name in wanted.keys() - outputs.keys():
        raise BadGraph(f"it does not give {name}")
    for name in outputs.keys() - wanted.keys():
        if not (predicts and is_output(name)):
            raise BadGraph(f"it gives {name}, which is no part of a step")
    for name, shape in wanted.items():
        _check_port("gives", outputs[name], shape)


def _check_port(verb: str, port: Port, shape: tuple[int, ...]) -> None:
    if (port.type, port.shape) != (FLOAT, shape):
        raise BadGraph(
            f"it {verb} {port.name} as {list(port.shape)} of type {port.type}, "
            f"the layout has float {list(shape)}"
        )


def is_output(name: str) -> bool:
    """Whether `name` is the model's output, or one of several."""
    return name == OUTPUT or name.startswith(f"{OUTPUT}/")


def _is_batch_input(name: str) -> bool:
    return name in ("x", "y") or name.startswith("x/")


def _fits(port: Port, shape: tuple[int, ...]) -> bool:
    return len(shape) == len(port.shape) and shape[1:] == port.shape[1:]


def _mebibytes(octets: int) -> str:
    return f"{octets / (1 << 20):,.1f} MiB"
