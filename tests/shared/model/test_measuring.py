"""Which modules start from random numbers that others may stand in for."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import edgeflock.client.zoo as zoo
from edgeflock.shared.model.measuring import measure
from edgeflock.shared.model.start import CONSTANT, NORMAL, UNIFORM, Filling, Start, generate
from edgeflock.shared.model.torch_module import FlatModule

HERE = "tests.shared.model.test_measuring:"
OURS = [name for name, kind in vars(zoo).items() if isinstance(kind, type) and name != "LanguageModel"]
ZOO = [f"{zoo.__name__}:{name}" for name in OURS]


def start_of(path: str, seed: int = 0) -> Start | None:
    return FlatModule(path, "mse", seed).first_model(seed)[1]


def having(*tensors: Tensor) -> nn.Module:
    module = nn.Module()
    for number, tensor in enumerate(tensors):
        module.register_parameter(f"t{number}", nn.Parameter(tensor))
    return module


# What is random


def defaults() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 10), nn.Conv2d(3, 8, 5), nn.BatchNorm2d(8), nn.PReLU())


def normals() -> nn.Module:
    return having(
        0.02 * torch.randn(50, 40), 3 + torch.randn(1000), nn.init.xavier_normal_(torch.empty(9, 9))
    )


def off_centre() -> nn.Module:
    return having(torch.rand(100, 10), 5 + torch.rand(300))


def tiny() -> nn.Module:
    return having(torch.randn(1), torch.randn(()), torch.rand(2) - 0.5, torch.randn(3, 3), torch.empty(0, 4))


def cut_normal() -> nn.Module:
    return having(nn.init.trunc_normal_(torch.empty(200, 100), std=0.1, a=-0.2, b=0.2))


def recurrent() -> nn.Module:
    return nn.LSTM(8, 32)


def attention() -> nn.Module:
    return nn.MultiheadAttention(32, 4)


# What is not


def pretrained() -> nn.Module:
    module = nn.Linear(30, 30)
    with torch.random.fork_rng():
        torch.manual_seed(99)
        module.weight.data = torch.randn(30, 30)
    return module


def warm() -> nn.Module:
    """Pretrained, and a little noise on it, so that no two are the same."""
    module = pretrained()
    assert isinstance(module, nn.Linear)
    module.weight.data += 0.3 * torch.randn(30, 30)
    return module


def new_head() -> nn.Module:
    return nn.Sequential(pretrained(), nn.Linear(30, 10))


def orthogonal(rows: int, columns: int) -> nn.Module:
    return having(nn.init.orthogonal_(torch.empty(rows, columns)))


def square() -> nn.Module:
    return orthogonal(64, 64)


def small_square() -> nn.Module:
    return orthogonal(4, 4)


def wide() -> nn.Module:
    return orthogonal(16, 400)


def tall() -> nn.Module:
    return orthogonal(400, 16)


def orthogonal_kernels() -> nn.Module:
    return having(nn.init.orthogonal_(torch.empty(32, 8, 3, 3)))


def orthogonal_gates() -> nn.Module:
    module = nn.LSTM(8, 32)
    for gate in torch.split(module.all_weights[0][1].data, 32):
        nn.init.orthogonal_(gate)
    return module


def identity() -> nn.Module:
    return having(torch.eye(20))


def padded() -> nn.Module:
    return nn.Embedding(5000, 32, padding_idx=0)


def forget_gate() -> nn.Module:
    module = nn.LSTM(8, 32)
    module.all_weights[0][3].data[32:64] = 1
    return module


def sparse() -> nn.Module:
    return having(nn.init.sparse_(torch.empty(100, 50), 0.1))


def two_scales() -> nn.Module:
    """The lower half of twice the deviation: the marginal alone hardly shows it."""
    return having(torch.cat((torch.randn(50, 50), 2 * torch.randn(50, 50))))


def low_rank() -> nn.Module:
    return having(torch.randn(60, 4) @ torch.randn(4, 60))


def twins() -> nn.Module:
    """As networks that follow another one, or layers that were copied."""
    layer = nn.Linear(20, 20)
    return having(layer.weight.detach(), layer.weight.detach().clone())


def heavy_tails() -> nn.Module:
    return having(torch.distributions.Laplace(0, 1).sample((300, 30)))


def skewed() -> nn.Module:
    return having(torch.empty(5000).exponential_())


def broken() -> nn.Module:
    return having(torch.full((5,), torch.nan))


OWN: list[Callable[[], nn.Module]] = [
    pretrained,
    warm,
    new_head,
    square,
    small_square,
    wide,
    tall,
    orthogonal_kernels,
    orthogonal_gates,
    identity,
    padded,
    forget_gate,
    sparse,
    two_scales,
    low_rank,
    twins,
    heavy_tails,
    skewed,
    broken,
]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("module", OWN, ids=lambda module: module.__name__)
def test_weights_of_its_own(module: Callable[[], nn.Module], seed: int) -> None:
    assert start_of(HERE + module.__name__, seed) is None


RANDOM = [defaults, normals, off_centre, tiny, cut_normal, recurrent, attention]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("path", [HERE + m.__name__ for m in RANDOM] + ZOO)
def test_what_is_random_can_be_drawn_again(path: str, seed: int) -> None:
    """With the same moments, tensor by tensor, as far as a few entries allow."""
    flat = FlatModule(path, "mse", seed)
    theta, start = flat.first_model(seed)
    assert start is not None
    assert start.seed == seed
    assert (theta == generate(start, flat.layout)).all()
    own = flat.theta()
    for tensor, (kind, a, b) in zip(flat.layout.tensors, start.tensors, strict=True):
        x, y = own[tensor.start : tensor.stop], theta[tensor.start : tensor.stop]
        if kind == CONSTANT:
            assert (x == y).all()
        elif x.size >= 100:
            deviation = (b - a) / 12**0.5 if kind == UNIFORM else b
            assert deviation == pytest.approx(x.std(), rel=0.15)
            assert y.mean() == pytest.approx(x.mean(), abs=6 * deviation / x.size**0.5)


def fillings(module: Callable[[], nn.Module]) -> tuple[Filling, ...]:
    start = start_of(HERE + module.__name__)
    assert start is not None
    return start.tensors


def test_what_is_fitted() -> None:
    weight, bias, kernel, kernel_bias, *rest = fillings(defaults)
    for filling, bound, near in (
        (weight, 1 / 8, 0.01),
        (bias, 1 / 8, 0.3),
        (kernel, 75**-0.5, 0.01),
        (kernel_bias, 75**-0.5, 0.3),
    ):
        assert filling.kind == UNIFORM
        assert filling.a == -filling.b
        assert filling.b == pytest.approx(bound, rel=near)
    assert {f.kind for f in rest} == {CONSTANT}
    assert [f.a for f in rest] == [1, 0, 0.25, 0, 1], "weight, bias, PReLU's, running mean and variance"

    small, high, _ = fillings(normals)
    assert small.kind == high.kind == NORMAL
    assert [small.a, high.a] == pytest.approx([0, 3], abs=0.1)
    assert small.a == 0
    assert [50 * small.b, high.b] == pytest.approx([1, 1], rel=0.1)

    unit, shifted = fillings(off_centre)
    assert unit.kind == shifted.kind == UNIFORM
    assert [unit.a, unit.b, shifted.a, shifted.b] == pytest.approx([0, 1, 5, 6], abs=0.03)


def test_one_number_is_enough_of_a_constant() -> None:
    flat = FlatModule(HERE + "identity", "mse")
    ones = torch.ones(400).numpy()
    assert measure(ones, ones, flat.layout, 3) == Start(3, (Filling(CONSTANT, 1.0, 0.0),))
    assert measure(ones, 2 * ones, flat.layout, 3) is None, "another number under each seed"


def test_torch_goes_on_as_if_nothing_had_been_built() -> None:
    flat = FlatModule(HERE + "defaults", "mse", 5)
    expected = torch.get_rng_state()
    before = flat.theta()
    flat.first_model(5)
    assert torch.equal(torch.get_rng_state(), expected)
    assert (flat.theta() == before).all()
