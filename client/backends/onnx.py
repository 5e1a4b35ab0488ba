"""Gradients with onnxruntime. The device needs neither torch nor the model's code.

The server exports the training step (server/training_graph/export.py) as a graph. Its inputs are theta/NAME
for each tensor of the layout and of a frozen base, x and y. Its outputs are loss, gradient/NAME for each
parameter of the layout, buffer/NAME for each of its buffers and, where the loss defines it, right. A model of
several inputs has x/NAME for each in place of x. The tensors of a base become constants of its file.

The server is not trusted. The device parses and checks the graph and estimates its memory (shared/graphs).
onnxruntime loads a copy serialized from the parsed graph.
"""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from edgeflock.client.backends.backend import Predictor
from edgeflock.shared.data.samples import IGNORED
from edgeflock.shared.errors import BadGraph, ConfigError, EdgeflockError, one_line
from edgeflock.shared.graphs import step as steps
from edgeflock.shared.model.base_file import BaseFile
from edgeflock.shared.model.fields import Inputs, arrays_by_name, describe_shape, rows
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.layout import Layout, Tensor

PROVIDERS = {"": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
"""client.accelerator -> onnxruntime's execution provider."""

_UNLIMITED = 1 << 40

_BATCH = 200
"""Samples that are evaluated at a time."""

_MAX_PACKED = 1 << 24
"""Bytes of the largest base whose matrices onnxruntime may keep in packed copies, one for each direction. A
step on packed ones takes a tenth less time (docs/results/finetune.md)."""

_EXTRA_BYTES = 1 << 26
"""Bytes that onnxruntime may use in addition to 1.5 times the memory limit."""


class OnnxBackend:
    """A Backend over an exported training step."""

    def __init__(
        self,
        graph: bytes,
        layout: Layout,
        *,
        threads: int = 1,
        model: str = "the model",
        memory: int = _UNLIMITED,
        digest: str = "",
        base: BaseFile | None = None,
        accelerator: str = "",
    ) -> None:
        """Load `graph`, use `threads` cores and at most `memory` bytes for the tensors of a step.

        `accelerator` is one of PROVIDERS. With adapters, `layout` has these, and `base` what is frozen. The
        sessions map its file, and read a large one in place.

        Raises BadGraph if the graph does not train, has another layout, needs more memory, or cannot run.
        Raises ConfigError if its digest is not `digest`, unless that is empty, or if the accelerator does not
        work.
        """
        self.layout, self._base = layout, base
        self._memory, self._threads, self._accelerator = memory, threads, accelerator
        self._model = model
        name, failed = f"the graph of {model}", f"onnxruntime cannot load the graph of {model}"
        with _naming(name, failed):
            self._graph = steps.StepGraph(graph, layout, memory, base=base)
        if digest not in ("", self._graph.digest):
            raise ConfigError(
                f"the server's graph of {model} is {self._graph.digest}, and client.graph_digest {digest}: "
                "approve the new one by setting that, if you know what has changed"
            )
        _limit_memory(memory)
        with _naming(name, failed):
            self._step = BoundStep(self._open(self._graph), layout)
        self._evaluation: Outputs | None = None

    def _open(self, graph: steps.StepGraph) -> onnxruntime.InferenceSession:
        return open_session(graph.rewritten(), self._threads, self._base, self._accelerator)

    def learn_to_predict(self, graph: bytes) -> None:
        """Load the evaluation `graph` of the model, for `predictor`. Raises BadGraph."""
        failed = f"onnxruntime cannot load the evaluation of {self._model}"
        with _naming(f"the evaluation graph of {self._model}", failed):
            step = steps.StepGraph(graph, self.layout, self._memory, base=self._base, predicts=True)
            self._evaluation = Outputs(self._open(step), self.layout, step)

    def predictor(self, theta: NDArray[np.float32]) -> Predictor:
        evaluation = self._require_evaluation()

        def predict(x: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
            with self._evaluating(x):
                return evaluation(theta, x)

        return predict

    def evaluate(
        self, theta: NDArray[np.float32], x: Inputs, y: NDArray[np.generic]
    ) -> tuple[float, float | None]:
        evaluation = self._require_evaluation()
        with self._evaluating(x):
            return evaluation.score(theta, x, y)

    def _require_evaluation(self) -> "Outputs":
        if self._evaluation is None:
            raise ConfigError(f"{self._model} has no evaluation graph here, so that nothing can be predicted")
        return self._evaluation

    def _evaluating(self, x: Inputs) -> AbstractContextManager[None]:
        failed = f"{self._model} does not fit inputs {describe_shape(x)}"
        return _naming(f"the evaluation graph of {self._model}", failed, ConfigError)

    def measure(self, x: Inputs, y: NDArray[np.generic]) -> int:
        """Return the bytes of a step's tensors for such a batch. Raises BadGraph if they are too many."""
        named = (*arrays_by_name(x).items(), ("y", y))
        return self._graph.measure({name: array.shape for name, array in named})

    def gradient(self, theta: NDArray[np.float32], x: Inputs, y: NDArray[np.generic]) -> Gradient:
        try:
            self.measure(x, y)
        except BadGraph as error:
            raise BadGraph(f"the graph of {self._model}: {error}") from error
        try:
            return self._step(theta, x, y)
        except RuntimeError as error:
            raise ConfigError(
                f"{self._model} cannot train on inputs {describe_shape(x)} with targets {y.dtype}: "
                f"{one_line(error)}"
            ) from error


class BoundStep:
    """A session whose inputs are views of theta and whose outputs are written into flat vectors."""

    def __init__(self, session: onnxruntime.InferenceSession, layout: Layout) -> None:
        self._session = session
        self._binding = session.io_binding()
        wanted = {node.name for node in session.get_inputs()}
        self._batch = {name for name in wanted if not name.startswith("theta/")}
        self._inputs = [(f"theta/{t.name}", t) for t in layout.tensors if f"theta/{t.name}" in wanted]
        # The CPU provider reads theta in place. Others copy it when it is bound, so each call binds it again.
        self._copies = session.get_providers()[0] != "CPUExecutionProvider"
        self._theta: NDArray[np.float32] | None = None
        self._loss, self._right = np.zeros((), np.float32), np.zeros((), np.float32)
        self._gradient = np.zeros(layout.parameters.size, np.float32)
        self._buffers = np.zeros(layout.buffers, np.float32)
        self._bind_output("loss", (), self._loss)
        self._knows_right = any(node.name == steps.RIGHT for node in session.get_outputs())
        if self._knows_right:
            self._bind_output(steps.RIGHT, (), self._right)
        for tensor in layout.tensors:
            self._bind_output(steps.output_of(tensor), tensor.shape, self._buffer_of(tensor))

    def __call__(self, theta: NDArray[np.float32], x: Inputs, y: NDArray[np.generic]) -> Gradient:
        """Backend.gradient, except that it raises RuntimeError if the data do not fit."""
        binding = self._binding
        if theta is not self._theta or self._copies:
            for name, tensor in self._inputs:
                binding.bind_cpu_input(name, theta[tensor.start : tensor.stop].reshape(tensor.shape))
            self._theta = theta if theta.flags.c_contiguous else None  # otherwise a copy is bound
        inputs = {**arrays_by_name(x), "y": y}
        if missing := self._batch - inputs.keys():
            raise RuntimeError(f"the graph asks for {sorted(missing)}, the data have {sorted(inputs)}")
        for name in self._batch:
            binding.bind_cpu_input(name, inputs[name])
        self._session.run_with_iobinding(binding)
        right = float(self._right) if self._knows_right else None
        return Gradient(float(self._loss), self._gradient, self._buffers, right)

    def _buffer_of(self, tensor: Tensor) -> NDArray[np.float32]:
        if not tensor.buffer:
            return self._gradient[tensor.start : tensor.stop]
        trained = self._gradient.size
        return self._buffers[tensor.start - trained : tensor.stop - trained]

    def _bind_output(self, name: str, shape: tuple[int, ...], place: NDArray[np.float32]) -> None:
        self._binding.bind_output(name, "cpu", 0, np.float32, shape, place.ctypes.data)


class Outputs:
    """Computes the model's outputs with a session of its evaluation graph."""

    def __init__(self, session: onnxruntime.InferenceSession, layout: Layout, step: steps.StepGraph) -> None:
        """`step` is the session's graph. Each call checks its memory for the number of samples."""
        self._session, self._step = session, step
        wanted = {node.name: node for node in session.get_inputs()}
        self._wanted = set(wanted)
        self._theta = [(f"theta/{t.name}", t) for t in layout.tensors if f"theta/{t.name}" in wanted]
        self._names = sorted(node.name for node in session.get_outputs() if steps.is_output(node.name))
        y = wanted["y"]
        self._y = tuple(y.shape[1:]), np.dtype(np.int64 if "int64" in y.type else np.float32)

    def __call__(self, theta: NDArray[np.float32], x: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
        """Raises BadGraph if the memory is too small for this number of samples."""
        self._step.measure({"x": x.shape, "y": (len(x), *self._y[0])})
        shape, kind = self._y  # the graph has a loss too, which is not requested
        batch = {"x": x, "y": np.zeros((len(x), *shape), kind)}
        return tuple(self._session.run(self._names, {**self._tensors(theta), **batch}))

    def score(
        self, theta: NDArray[np.float32], x: Inputs, y: NDArray[np.generic]
    ) -> tuple[float, float | None]:
        """Return (mean loss, accuracy of classes or None) on n samples. Raises BadGraph as a call does."""
        tensors, total, correct, counted = self._tensors(theta), 0.0, 0, 0
        for start in range(0, len(y), _BATCH):
            chosen = slice(start, start + _BATCH)
            batch = {**arrays_by_name(rows(x, chosen)), "y": y[chosen]}
            self._step.measure({name: array.shape for name, array in batch.items()})
            fed = {name: array for name, array in batch.items() if name in self._wanted}
            loss, output, *_ = self._session.run(["loss", *self._names], {**tensors, **fed})
            total += float(loss) * len(batch["y"])
            right, count = correct_classes(output, batch["y"])
            correct, counted = correct + right, counted + count
        return total / len(y), correct / counted if counted else None

    def _tensors(self, theta: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        return {name: theta[t.start : t.stop].reshape(t.shape) for name, t in self._theta}


def correct_classes(output: NDArray[np.float32], y: NDArray[np.generic]) -> tuple[int, int]:
    """Return (right predictions, all predictions) of logits [n, classes, ...] for classes y [n, ...].

    (0, 0) of any other output. Targets that a loss ignores do not count.
    """
    if y.dtype.kind != "i" or output.ndim != y.ndim + 1:
        return 0, 0
    counts = y != IGNORED
    return int((output.argmax(axis=1) == y)[counts].sum()), int(counts.sum())


def open_session(
    graph: bytes, threads: int, base: BaseFile | None = None, accelerator: str = ""
) -> onnxruntime.InferenceSession:
    """Open `graph`, with constants in the file of a `base`.

    Raises ConfigError if the accelerator does not work here.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    # Not the last level: it reorders the inputs of pooling for AVX, which costs more than it gains.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.log_severity_level = 4  # errors are also raised
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.load_model_format", "ONNX")
    options.add_session_config_entry("session.use_env_allocators", "1")
    # A run has one batch size, so the arena stops growing after the first step. Without the arena, or with it
    # shrunk after each run, a step's peak is higher and it may be slower. Planning a step's memory as one
    # piece costs 5 to 15 MB and saves no time.
    options.enable_mem_pattern = False
    disabled: list[str] = []
    if base is not None:
        folder = str(base.path.parent)
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        options.add_session_config_entry("session.disable_prepacking", str(int(base.size > _MAX_PACKED)))
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        # These would make a transposed or dequantized copy of each matrix, and keep it.
        disabled = ["ConstantFolding", "CommonSubexpressionElimination"]
    provider = PROVIDERS[accelerator]
    settings = {"arena_extend_strategy": "kSameAsRequested", "use_tf32": "0"} if accelerator else {}
    session = onnxruntime.InferenceSession(
        graph, options, providers=[(provider, settings)], enable_fallback=0, disabled_optimizers=disabled
    )
    if session.get_providers()[0] != provider:  # the CPU took over
        raise ConfigError(
            f"client.accelerator = {accelerator!r}: onnxruntime {onnxruntime.__version__} cannot use it here;"
            " install onnxruntime-gpu instead, or leave it out to train on the processor"
        )
    return session


def _limit_memory(octets: int) -> None:
    """Limit onnxruntime's tensors in this process to 1.5 * `octets` bytes + _EXTRA_BYTES.

    onnxruntime chooses the order of the nodes, so a step may hold more at a time than footprint() found. It
    also allocates memory in larger blocks.
    """
    info = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    arena = onnxruntime.OrtArenaCfg({"max_mem": min(octets + octets // 2 + _EXTRA_BYTES, sys.maxsize)})
    onnxruntime.create_and_register_allocator(info, arena)


@contextmanager
def _naming(graph: str, failed: str, kind: type[EdgeflockError] = BadGraph) -> Iterator[None]:
    """Name the graph in a BadGraph, and convert onnxruntime's errors, which have no base of their own."""
    try:
        yield
    except BadGraph as error:
        raise BadGraph(f"{graph}: {error}") from error
    except ConfigError:
        raise
    except Exception as error:
        raise kind(f"{failed}: {one_line(error)}") from error
