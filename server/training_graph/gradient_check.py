"""Check that an exported graph computes what torch computes. Only checked graphs are offered.

Translations to ONNX can be silently wrong. So each graph's loss, gradients and buffers are compared with
autograd's, for two batch sizes, on parameters near the initial ones.
"""

from collections.abc import Iterator

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from edgeflock.shared.model.fields import Inputs, arrays_by_name, copy_inputs, rows
from edgeflock.shared.model.torch_module import FlatModule

TOLERANCE = 1e-4
"""The largest allowed difference, relative to the largest entry."""

_TRIALS = 3
"""Rounding may decide on which side of a kink a value lies (a ReLU's zero, two equal maxima in a pool). So a
correct graph may differ once, but a wrong one differs every time."""

_DRAWS = 400
"""Steps to average over if the model draws random numbers (dropout)."""

_ERRORS = 6
"""Standard errors by which such averages may differ."""

_FLOOR = 0.01
"""The fraction of the model's largest gradient below which a tensor's gradients count as rounding errors."""

_NUDGES = 4
"""How often the last bit of all parameters is changed at random, to measure rounding."""

_ROUNDING = 4
"""A graph may differ by this many times the largest change of a tensor by such a nudge. Sums that cancel
leave only rounding errors, such as everything before a normalisation over two samples.
"""

Feed = dict[str, NDArray[np.generic]]


def check_step(flat: FlatModule, graph: bytes, x: Inputs, y: NDArray[np.generic]) -> str | None:
    """Describe how the training step differs from autograd, on the batch (x, y) and on two of its samples.

    None if nothing does, else text such as "gradient/conv.weight by 0.3, relative".
    """
    session = session_for(graph)
    random = np.random.default_rng(0)
    for batch in (len(y), 2):
        some = rows(x, slice(batch))
        for _ in range(_TRIALS):
            theta = _perturbed_parameters(flat, random)
            if (found := _compare_step(flat, session, theta, some, y[:batch])) is None:
                break
        else:
            return f"{found}, with {batch} samples"
    return None


def check_evaluation(flat: FlatModule, graph: bytes, x: Inputs, y: NDArray[np.generic]) -> str | None:
    """The same check for the evaluation's loss."""
    session, theta = session_for(graph), _perturbed_parameters(flat, np.random.default_rng(0))
    for batch in (len(y), 2):
        some = rows(x, slice(batch))
        wanted, _ = flat.evaluate(theta, copy_inputs(some), y[:batch])
        (found,) = session.run(["loss"], feed(session, flat, theta, some, y[:batch]))
        if not abs(found - wanted) <= TOLERANCE * abs(wanted):
            return f"the loss, {found:.6g} for {wanted:.6g}, with {batch} samples"
    return None


def feed(
    session: onnxruntime.InferenceSession,
    flat: FlatModule,
    theta: NDArray[np.float32],
    x: Inputs,
    y: NDArray[np.generic],
) -> Feed:
    """The inputs that `session` needs."""
    tensors = {f"theta/{t.name}": theta[t.start : t.stop].reshape(t.shape) for t in flat.layout.tensors}
    for t, frozen in zip(() if flat.base is None else flat.base.tensors, flat.frozen, strict=True):
        tensors[f"theta/{t.name}"] = frozen.numpy(force=True)
    every: Feed = {**tensors, **arrays_by_name(x), "y": y}
    return {entry.name: every[entry.name] for entry in session.get_inputs()}


def _compare_step(
    flat: FlatModule,
    session: onnxruntime.InferenceSession,
    theta: NDArray[np.float32],
    x: Inputs,
    y: NDArray[np.generic],
) -> str | None:
    layout, fed = flat.layout, feed(session, flat, theta, x, y)
    names = [output.name for output in session.get_outputs()]

    def ours() -> NDArray[np.float64]:
        return np.concatenate([np.ravel(value) for value in session.run(names, fed)]).astype(np.float64)

    def theirs(theta: NDArray[np.float32] = theta) -> NDArray[np.float64]:
        loss, gradient, statistics, right, _ = flat.gradient(
            theta, copy_inputs(x), y
        )  # a module may write into x
        known = [] if right is None else [right]
        return np.concatenate(([loss], gradient, statistics, known)).astype(np.float64)

    found, wanted = ours(), theirs()
    allowed, random = np.zeros_like(wanted), not np.array_equal(theirs(), wanted)
    if random:
        many = np.stack([ours() for _ in range(_DRAWS)]), np.stack([theirs() for _ in range(_DRAWS)])
        found, wanted = (each.mean(0) for each in many)
        allowed = _ERRORS * np.sqrt((many[0].var(0) + many[1].var(0)) / _DRAWS)
    wrong = np.maximum(np.abs(found - wanted) - allowed, 0)
    sizes = (tensor.stop - tensor.start for tensor in layout.tensors)
    bounds = np.cumsum([0, 1, *sizes, 1])
    largest = np.abs(wanted[1 : 1 + layout.parameters.size]).max()
    for name, start, stop in zip(names, bounds, bounds[1:], strict=False):
        # Relative to the tensor's largest entry, or to a floor if that has rounding errors only.
        size = max(np.abs(wanted[start:stop]).max(initial=0), _FLOOR * largest)
        most = wrong[start:stop].max(initial=0)
        # NaN fails this comparison, too.
        if most <= TOLERANCE * size:
            continue
        if not random:
            rounding = max(np.abs(theirs(near) - wanted)[start:stop].max() for near in _nudged(theta))
            if most <= _ROUNDING * rounding:
                continue
        return f"{name} by {most / size:.2g}, relative"
    return None


def _nudged(theta: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    draws = np.random.default_rng(0)
    for _ in range(_NUDGES):
        yield np.nextafter(theta, draws.choice(np.array([-np.inf, np.inf], np.float32), theta.size))


def _perturbed_parameters(flat: FlatModule, random: np.random.Generator) -> NDArray[np.float32]:
    """Parameters near the initial ones, whose zeros may hide mistakes."""
    theta, trained = flat.theta(), flat.layout.parameters.size
    theta[:trained] += (0.02 * random.standard_normal(trained)).astype(np.float32)
    return theta


def session_for(graph: bytes) -> onnxruntime.InferenceSession:
    """A session that computes `graph` on one core."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
