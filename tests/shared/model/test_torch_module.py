"""Any torch module as a flat vector: its gradients, its running statistics, its loss and accuracy."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.torch_module import FlatModule

NETS = "tests.shared.model.test_torch_module:"


def normed() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, momentum=0.3), nn.Flatten(), nn.Linear(27, 4))


def plain() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.GroupNorm(1, 3), nn.Flatten(), nn.Linear(27, 4))


def stateless() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(50, track_running_stats=False), nn.Linear(50, 4))


def several() -> nn.Module:
    """Two kinds of layers with running statistics, among them one without parameters of its own."""
    return nn.Sequential(
        nn.InstanceNorm2d(2, track_running_stats=True), nn.Flatten(), nn.BatchNorm1d(50), nn.Linear(50, 4)
    )


def cumulative() -> nn.Module:
    return nn.Sequential(nn.Linear(50, 4), nn.Sequential(nn.BatchNorm1d(4, momentum=None)))


def only_cumulative() -> nn.Module:
    return nn.BatchNorm1d(50, momentum=None)


def double() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(50).double())


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(3))


def half_a_buffer() -> nn.Module:
    layer = nn.BatchNorm1d(50)
    assert layer.running_var is not None
    layer.running_var = layer.running_var.half()
    return nn.Sequential(nn.Flatten(), layer, nn.Linear(50, 4))


class PerStep(nn.Module):
    """50 numbers as the scores of two classes for each of 25 steps."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x.view(-1, 2, 25)


def flat(make: Callable[[], nn.Module], loss: str = "cross_entropy") -> FlatModule:
    return FlatModule(NETS + make.__name__, loss)


def batch(size: int = 8, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    random = np.random.default_rng(seed)
    x = random.standard_normal((size, 2, 5, 5)).astype(np.float32) * np.float32(3) + np.float32(1)
    return x, random.integers(0, 4, size)


def moved(module: FlatModule, seed: int = 1) -> NDArray[np.float32]:
    """theta away from the initial one, with statistics of their own."""
    theta = module.theta()
    theta += np.random.default_rng(seed).uniform(0, 0.5, theta.size).astype(np.float32)
    return theta


def torch_twin(module: FlatModule, make: Callable[[], nn.Module], theta: NDArray[np.float32]) -> nn.Module:
    """The plain torch module with this theta."""
    twin = make()
    named = dict(twin.named_parameters()) | dict(twin.named_buffers())
    with torch.no_grad():
        for tensor in module.layout.tensors:
            named[tensor.name].copy_(torch.from_numpy(theta[tensor.start : tensor.stop]).view(tensor.shape))
    return twin


def test_running_statistics_lie_behind_the_parameters() -> None:
    layout = flat(normed).layout
    assert [(t.name, t.shape, t.buffer) for t in layout.tensors] == [
        ("0.weight", (3, 2, 3, 3), False),
        ("0.bias", (3,), False),
        ("1.weight", (3,), False),
        ("1.bias", (3,), False),
        ("3.weight", (4, 27), False),
        ("3.bias", (4,), False),
        ("1.running_mean", (3,), True),
        ("1.running_var", (3,), True),
    ]
    assert layout.parameters.size == 57 + 6 + 112
    assert layout.buffers == 6
    assert flat(normed).theta()[-6:].tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("make", [plain, stateless])
def test_a_model_without_them_is_parameters_only(make: Callable[[], nn.Module]) -> None:
    module = flat(make)
    assert module.layout.parameters is module.layout
    _, gradient, statistics, _, _ = module.gradient(module.theta(), *batch())
    assert (gradient.size, statistics.size) == (module.layout.size, 0)


@pytest.mark.parametrize("loss", ["cross_entropy", "bce", "mse"])
def test_a_step_tells_how_right_the_model_was_before(loss: str) -> None:
    """By its own outputs, those of training: with the statistics of the batch."""
    module = FlatModule(NETS + "stateless", loss)
    theta, (x, y) = moved(module), batch()
    output = torch_twin(module, stateless, theta)(torch.from_numpy(x)).detach().numpy()
    if loss == "cross_entropy":
        assert module.gradient(theta, x, y).right == pytest.approx((output.argmax(1) == y).mean())
        soft = np.full(output.shape, 0.25, np.float32)
        assert module.gradient(theta, x, soft).right is None, "probabilities have no right one"
        return
    target = (np.random.default_rng(5).random(output.shape) > 0.5).astype(np.float32)
    wanted = pytest.approx(((output > 0) == (target > 0.5)).mean()) if loss == "bce" else None
    assert module.gradient(theta, x, target).right == wanted


@pytest.mark.parametrize("make", [normed, plain, stateless, several])
def test_gradients_are_those_of_torch(make: Callable[[], nn.Module]) -> None:
    module = flat(make)
    theta, (x, y) = moved(module), batch()
    given = theta.copy()
    loss, gradient, _, _, _ = module.gradient(theta, x, y)
    assert theta.tobytes() == module.theta().tobytes() == given.tobytes(), "a step is not taken"
    twin = torch_twin(module, make, theta)
    expected = functional.cross_entropy(twin(torch.from_numpy(x)), torch.from_numpy(y))
    wanted = torch.autograd.grad(expected, list(twin.parameters()))
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(gradient, torch.cat([g.flatten() for g in wanted]), rtol=1e-4, atol=1e-6)


def test_the_statistics_are_the_batch_s_own() -> None:
    """Whatever they were before: means and unbiased variances over samples and places."""
    module = flat(normed)
    x, y = batch()
    for seed in (1, 2):
        theta = moved(module, seed)
        _, _, statistics, _, _ = module.gradient(theta, x, y)
        assert statistics.dtype == np.float32
        with torch.no_grad():
            twin = torch_twin(module, normed, theta)
            assert isinstance(twin, nn.Sequential)
            seen = twin[0](torch.from_numpy(x)).transpose(0, 1).flatten(1)
        expected = torch.cat((seen.mean(1), seen.var(1))).numpy()
        np.testing.assert_allclose(statistics, expected, rtol=1e-5, atol=1e-6)


def test_a_step_leaves_nothing_behind() -> None:
    module, fresh = flat(normed), flat(normed)
    theta, (x, y) = moved(module), batch()
    for seed in range(5):
        module.gradient(moved(module, seed), *batch(seed=seed))
    first, again = module.gradient(theta, x, y), fresh.gradient(theta, x, y)
    assert first[0] == again[0]
    assert first[1].tobytes() == again[1].tobytes()
    assert first[2].tobytes() == again[2].tobytes()


@pytest.mark.parametrize("make", [normed, several])
def test_an_evaluation_is_by_the_running_statistics(make: Callable[[], nn.Module]) -> None:
    module = flat(make)
    theta, (x, y) = moved(module), batch(50)
    loss, accuracy = module.evaluate(theta, x, y, batch=7)
    twin = torch_twin(module, make, theta).eval()
    with torch.no_grad():
        output = twin(torch.from_numpy(x))
    assert loss == pytest.approx(functional.cross_entropy(output, torch.from_numpy(y)).item(), rel=1e-5)
    assert accuracy == (output.argmax(1).numpy() == y).mean()
    other = theta.copy()
    other[-6:] += 3
    assert module.evaluate(other, x, y)[0] != pytest.approx(loss, rel=1e-2)


def test_evaluations_and_steps_do_not_mix() -> None:
    module = flat(normed)
    theta, (x, y) = moved(module), batch()
    before = module.evaluate(theta, x, y)
    module.gradient(theta, x, y)
    assert module.evaluate(theta, x, y) == before


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (cumulative, "1.0 averages over all batches (momentum=None)"),
        (only_cumulative, "it averages over all batches (momentum=None)"),
        (double, "1.weight is torch.float64, not float32"),
        (lazy, "0.weight is lazy; give its layer its sizes"),
        (half_a_buffer, "1.running_var is torch.float16, not float32"),
    ],
)
def test_what_cannot_travel_is_named(make: Callable[[], nn.Module], says: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        flat(make)
    assert says in str(refusal.value)
    assert make.__name__ in str(refusal.value)


def test_the_accuracy_of_several_targets_a_sample() -> None:
    """Two classes, 25 targets each of 8 samples: every prediction counts as one."""
    module = flat(PerStep)
    random = np.random.default_rng(3)
    scores, y = random.standard_normal((8, 50)).astype(np.float32), random.integers(0, 2, (8, 25))
    loss, accuracy = module.evaluate(module.theta(), scores, y, batch=3)
    wanted = functional.cross_entropy(torch.from_numpy(scores).view(8, 2, 25), torch.from_numpy(y))
    assert loss == pytest.approx(wanted.item(), rel=1e-5)
    assert accuracy == ((scores[:, 25:] > scores[:, :25]) == y).mean()
