"""What is trained: a name -> (the first arrays, a step on them, their accuracy).

digits    softmax regression on digits, three epochs a step, after `seconds` of standing by
cnn       DigitsCNN, one step on ten samples, as a device of the native server does by default
noise     211,690 numbers in the tensors of the AdaComp paper's CNN; a step is random
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

Arrays = list[np.ndarray[Any, Any]]

_PAPER = ((32, 1, 3, 3), (32,), (32, 32, 3, 3), (32,), (128, 1568), (128,), (10, 128), (10,))


def _digits(part: int, parts: int) -> tuple[Any, Any]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    order = order[1437:] if part < 0 else order[:1437][part::parts]
    return (x[order] / 16).astype(np.float32), y[order]


def _outputs(model: Arrays, x: Any) -> Any:
    logits = x @ model[0] + model[1]
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def digits(model: Arrays, part: int, parts: int, seconds: float) -> int:
    x, y = _digits(part, parts)
    rng = np.random.default_rng()
    for _ in range(3):
        for rows in np.array_split(rng.permutation(len(x)), len(x) // 32):
            error = _outputs(model, x[rows])
            error[np.arange(len(rows)), y[rows]] -= 1
            model[0] -= 0.1 * x[rows].T @ error / len(rows)
            model[1] -= 0.1 * error.mean(axis=0)
    time.sleep(seconds)
    return len(x)


def digits_accuracy(model: Arrays) -> float:
    x, y = _digits(-1, 1)
    return float((_outputs(model, x).argmax(axis=1) == y).mean())


def cnn(model: Arrays, part: int, parts: int, seconds: float) -> int:
    import torch
    from torch.nn.functional import cross_entropy

    from edgeflock.client.zoo import DigitsCNN

    torch.set_num_threads(1)
    net = DigitsCNN()
    for parameter, array in zip(net.parameters(), model, strict=True):
        parameter.data = torch.from_numpy(array)
    x, y = _digits(part, parts)
    rows = np.random.default_rng().integers(0, len(x), 10)
    images = torch.from_numpy(x[rows]).reshape(-1, 1, 8, 8)
    cross_entropy(net(images), torch.from_numpy(y[rows])).backward()
    for parameter, array in zip(net.parameters(), model, strict=True):
        assert parameter.grad is not None
        array -= 0.1 * parameter.grad.numpy()
    return 10


def _cnn_arrays() -> Arrays:
    from edgeflock.client.zoo import DigitsCNN

    return [parameter.detach().numpy() for parameter in DigitsCNN().parameters()]


def noise(model: Arrays, part: int, parts: int, seconds: float) -> int:
    rng = np.random.default_rng()
    for array in model:
        array -= 1e-3 * rng.standard_normal(array.shape).astype(np.float32)
    return 10


def _nothing(model: Arrays) -> float:
    return 0.0


Step = Callable[[Arrays, int, int, float], int]

JOBS: dict[str, tuple[Callable[[], Arrays], Step, Callable[[Arrays], float]]] = {
    "digits": (lambda: [np.zeros((64, 10), np.float32), np.zeros(10, np.float32)], digits, digits_accuracy),
    "cnn": (_cnn_arrays, cnn, _nothing),
    "noise": (lambda: [np.zeros(shape, np.float32) for shape in _PAPER], noise, _nothing),
}
