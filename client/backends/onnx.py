"""Gradients by onnxruntime: neither torch nor any model's code is on the device.

The server exports the training step (server/training_graph/export.py) as a graph whose inputs are theta/NAME
for each tensor of the layout, x and y, and whose outputs are loss, gradient/NAME for each parameter and
buffer/NAME for each buffer.
"""

import logging
import re
import time
from collections.abc import Callable, Mapping

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.layout import Layout, Tensor

log = logging.getLogger(__name__)

Arguments = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.generic]]
"""theta, x, y."""

Step = Callable[
    [NDArray[np.float32], NDArray[np.float32], NDArray[np.generic]],
    tuple[float, NDArray[np.float32], NDArray[np.float32]],
]
"""As Backend.gradient."""

PROVIDERS = {
    "TensorRT": ("TensorrtExecutionProvider", "CUDAExecutionProvider"),
    "CUDA": ("CUDAExecutionProvider",),
    "XNNPACK": ("XnnpackExecutionProvider",),
}
"""What may be faster than the CPU: name -> onnxruntime's providers, each for what the one before cannot."""

TOLERANCE = 1e-3
"""How far a provider's gradient may be from the CPU's: the difference's norm over the norm."""

_RUNS = 3
"""Timed steps of each provider; the quickest counts."""

# A tensor whose data lie in a file, and a node that may load a compiled engine from one. protobuf also reads
# the key's tag and length in longer forms than it writes.
_READS_FILES = re.compile(
    rb"(?:\x0a|\x8a\x80{0,8}\x00)(?:\x08|\x88\x80{0,8}\x00)location|EPContext", re.DOTALL
)


class OnnxBackend:
    """A Backend over an exported training step.

    If onnxruntime has other execution providers than the CPU, all are given the first batch, and the fastest
    that computes the same gradient stays.
    """

    def __init__(self, graph: bytes, layout: Layout, *, threads: int = 1, model: str = "the model") -> None:
        """Load `graph`, use `threads` cores. Raises ConfigError if it cannot run or is of another layout."""
        if _READS_FILES.search(graph):
            raise ConfigError(f"the graph of {model} wants to read files of this device, which none may do")
        self.layout = layout
        self.name = engine()
        self._model = model
        try:
            self._step: Step = Bound(open_session(graph, ("CPUExecutionProvider",), threads), layout)
        except ConfigError as error:
            raise ConfigError(f"the graph of {model}: {error}") from error
        except Exception as error:  # onnxruntime's errors have no base of their own
            raise ConfigError(f"onnxruntime cannot load the graph of {model}: {_line(error)}") from error

        def opening(providers: tuple[str, ...]) -> Callable[[], Step]:
            return lambda: Bound(open_session(graph, providers, threads), layout)

        self._untried = {provider: opening(PROVIDERS[provider]) for provider in _others()}

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> tuple[float, NDArray[np.float32], NDArray[np.float32]]:
        try:
            result = self._step(theta, x, y)
        except RuntimeError as error:
            raise ConfigError(
                f"{self._model} cannot train on inputs {list(x.shape[1:])} with targets {y.dtype}: "
                f"{_line(error)}"
            ) from error
        if self._untried and np.isfinite(result[1]).all():
            cpu = self._step
            candidates = {"CPU": lambda: cpu, **self._untried}
            provider, self._step = fastest(candidates, (theta, x, y), result[1].copy())
            self.name, self._untried = engine(provider), {}
        return result


class Bound:
    """A session whose inputs are views of theta, and whose outputs land in flat vectors."""

    def __init__(self, session: onnxruntime.InferenceSession, layout: Layout) -> None:
        """Raises ConfigError if the session's inputs and outputs are not those of the layout."""
        _check(session, layout)
        self._session = session
        self._binding = session.io_binding()
        wanted = {node.name for node in session.get_inputs()}
        self._inputs = [(f"theta/{t.name}", t) for t in layout.tensors if f"theta/{t.name}" in wanted]
        # The CPU reads theta where it lies. Others copy it when it is bound, so it must be bound each time.
        self._copies = session.get_providers()[0] != "CPUExecutionProvider"
        self._theta: NDArray[np.float32] | None = None
        self._loss = np.zeros((), np.float32)
        self._gradient = np.zeros(layout.parameters.size, np.float32)
        self._buffers = np.zeros(layout.buffers, np.float32)
        self._into("loss", (), self._loss)
        for tensor in layout.tensors:
            self._into(_output(tensor), tensor.shape, self._place(tensor))

    def __call__(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> tuple[float, NDArray[np.float32], NDArray[np.float32]]:
        """As Backend.gradient, but for a RuntimeError if the data do not fit."""
        binding = self._binding
        if theta is not self._theta or self._copies:
            for name, tensor in self._inputs:
                binding.bind_cpu_input(name, theta[tensor.start : tensor.stop].reshape(tensor.shape))
            self._theta = theta if theta.flags.c_contiguous else None  # of any other, a copy is bound
        binding.bind_cpu_input("x", x)
        binding.bind_cpu_input("y", y)
        self._session.run_with_iobinding(binding)
        return float(self._loss), self._gradient, self._buffers

    def _place(self, tensor: Tensor) -> NDArray[np.float32]:
        if not tensor.buffer:
            return self._gradient[tensor.start : tensor.stop]
        trained = self._gradient.size
        return self._buffers[tensor.start - trained : tensor.stop - trained]

    def _into(self, name: str, shape: tuple[int, ...], place: NDArray[np.float32]) -> None:
        self._binding.bind_output(name, "cpu", 0, np.float32, shape, place.ctypes.data)


def open_session(graph: bytes, providers: tuple[str, ...], threads: int) -> onnxruntime.InferenceSession:
    """`graph` on the first of `providers`. Raises RuntimeError if that one does not work here."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    # All but the last level, which reorders what pools read for AVX and loses more than that gains.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.log_severity_level = 4  # what goes wrong is raised as well
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.load_model_format", "ONNX")
    # A run has one batch size, so after its first step the arena has what a step needs and grows no more.
    # Without the arena, or with it shrunk after each run, a step peaks higher and may be slower. Planning a
    # step's memory as one piece costs 5 to 15 MB and saves no time.
    options.enable_mem_pattern = False
    settings: dict[str, dict[str, str]] = {
        "CUDAExecutionProvider": {"arena_extend_strategy": "kSameAsRequested", "use_tf32": "0"},
        "XnnpackExecutionProvider": {"intra_op_num_threads": str(threads)},
    }
    session = onnxruntime.InferenceSession(
        graph, options, providers=[(name, settings.get(name, {})) for name in providers], enable_fallback=0
    )
    if session.get_providers()[0] != providers[0]:  # it was not there after all, and the next one took over
        raise RuntimeError(f"{providers[0]} does not work on this device")
    return session


def fastest(
    candidates: Mapping[str, Callable[[], Step]],
    batch: Arguments,
    expected: NDArray[np.float32],
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[str, Step]:
    """The candidate that is quickest on `batch`, of those whose gradient there is `expected`.

    At least one must be. The others are passed over with a warning.
    """
    timed: dict[str, tuple[float, Step]] = {}
    for name, make in candidates.items():
        try:
            step = make()
            error = np.linalg.norm(step(*batch)[1] - expected)
            if not error <= TOLERANCE * np.linalg.norm(expected):
                raise RuntimeError(f"its gradient is off by {error / np.linalg.norm(expected):.1e}")
            timed[name] = min(_seconds(step, batch, clock) for _ in range(_RUNS)), step
        except Exception as error:  # onnxruntime's errors have no base of their own
            log.warning("execution provider %s is passed over: %s", name, _line(error))
    for name, (seconds, _) in timed.items():
        log.info("execution provider %s takes %.2f ms a step", name, 1e3 * seconds)
    name = min(timed, key=lambda name: timed[name][0])
    return name, timed[name][1]


def engine(provider: str = "") -> str:
    """E.g. "onnxruntime 1.31.1 CPU"; with all providers there are, e.g. CUDA/CPU, if none is chosen."""
    return f"onnxruntime {onnxruntime.__version__} {provider or '/'.join([*_others(), 'CPU'])}"


def _others() -> list[str]:
    """Which of PROVIDERS are here."""
    available = onnxruntime.get_available_providers()
    return [provider for provider, (first, *_) in PROVIDERS.items() if first in available]


def _seconds(step: Step, batch: Arguments, clock: Callable[[], float]) -> float:
    began = clock()
    step(*batch)
    return clock() - began


def _check(session: onnxruntime.InferenceSession, layout: Layout) -> None:
    """Raise ConfigError unless the graph's inputs and outputs are those of the layout."""
    known = {f"theta/{tensor.name}": list(tensor.shape) for tensor in layout.tensors}
    asked = {node.name: node for node in session.get_inputs()}
    for name in ("x", "y"):
        if asked.pop(name, None) is None:
            raise ConfigError(f"it asks for no {name}")
    for name, node in asked.items():
        if name not in known:
            raise ConfigError(f"it asks for {name}, which the layout does not have")
        _check_one("takes", node, known[name])
    results = {node.name: node for node in session.get_outputs()}
    for name, shape in [("loss", []), *((_output(tensor), list(tensor.shape)) for tensor in layout.tensors)]:
        if name not in results:
            raise ConfigError(f"it does not give {name}")
        _check_one("gives", results[name], shape)


def _check_one(verb: str, node: onnxruntime.NodeArg, shape: list[int]) -> None:
    if (node.type, node.shape) != ("tensor(float)", shape):
        raise ConfigError(f"it {verb} {node.name} as {node.type} {node.shape}, the layout as float {shape}")


def _output(tensor: Tensor) -> str:
    return f"{'buffer' if tensor.buffer else 'gradient'}/{tensor.name}"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
