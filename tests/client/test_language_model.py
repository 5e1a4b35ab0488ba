"""The language model: causal, as large as it says, and exportable; its loss in chunks is the plain one."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional

from edgeflock.client.zoo import LanguageModel
from edgeflock.server.training_graph.export import export_model
from edgeflock.shared.graphs.footprint import footprint
from edgeflock.shared.graphs.reading import read
from edgeflock.shared.model.losses import LOSSES
from edgeflock.shared.model.token_losses import next_token, right_tokens
from edgeflock.shared.model.torch_module import FlatModule

SMALL = {"vocabulary": 50, "width": 32, "blocks": 2, "heads": 4, "context": 20}
PATH = f"edgeflock.client.zoo:LanguageModel({', '.join(f'{name}={size}' for name, size in SMALL.items())})"


def model() -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(**SMALL)


def texts(count: int, length: int = 20) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    ids = np.random.default_rng(count).integers(0, 50, (count, length + 1))
    return ids[:, :-1].astype(np.float32), ids[:, 1:]


def test_it_is_as_large_as_it_says_and_starts_from_random_numbers() -> None:
    flat = FlatModule("edgeflock.client.zoo:LanguageModel", "next_token")
    assert re.findall(r"([\d,]+) parameters", str(LanguageModel.__doc__)) == [f"{flat.layout.size:,}"]
    assert FlatModule(PATH, "next_token").first_model(0)[1] is not None


def test_a_later_token_changes_no_earlier_logit() -> None:
    x = torch.from_numpy(texts(3)[0])
    changed = x.clone()
    changed[:, 12] = (changed[:, 12] + 1) % 50
    before, after = (model().logits(one) for one in (x, changed))
    torch.testing.assert_close(after[:, :12], before[:, :12], rtol=0, atol=0)
    assert (after[:, 12:] != before[:, 12:]).any(2).all()


def test_the_order_of_tokens_counts_and_a_text_may_be_short() -> None:
    x = torch.from_numpy(texts(2)[0])
    swapped = x[:, [1, 0, *range(2, 20)]]
    assert not torch.allclose(model().logits(x)[:, -1], model().logits(swapped)[:, -1])
    torch.testing.assert_close(model().logits(x[:, :7]), model().logits(x)[:, :7])


@pytest.mark.parametrize("frozen", [(), ("head.weight",), ("tokens.weight", "head.weight")], ids=len)
def test_the_loss_in_chunks_is_the_plain_one_with_its_gradients(frozen: tuple[str, ...]) -> None:
    """20 positions are no multiple of a chunk."""
    x, y = (torch.from_numpy(part) for part in texts(3))
    one, other = model(), model()
    for name in frozen:
        one.get_parameter(name).requires_grad_(False)
    loss, plain = next_token(one(x), {"y": y}), functional.cross_entropy(other.logits(x).mT, y)
    torch.testing.assert_close(loss, plain)
    (2 * loss).backward()  # type: ignore[no-untyped-call]
    (2 * plain).backward()  # type: ignore[no-untyped-call]
    for name, parameter in one.named_parameters():
        if name in frozen:
            assert parameter.grad is None
        else:
            torch.testing.assert_close(parameter.grad, other.get_parameter(name).grad, msg=name)
    assert torch.equal(right_tokens(one(x), y), one.logits(x).argmax(2) == y)


MEMORY = """
import sys, torch
from pathlib import Path
from torch.nn import functional
from edgeflock.shared.model.token_losses import next_token

def peak():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])

torch.set_num_threads(1)
features = torch.randn(8, 256, 16, requires_grad=True)
head, y = torch.randn(8192, 16, requires_grad=True), torch.randint(8192, (8, 256))
next_token((features[:1, :1], head), {"y": y[:1, :1]}).backward()
before = peak()
if sys.argv[1] == "chunks":
    loss = next_token((features, head), {"y": y})
else:
    loss = functional.cross_entropy((features @ head.T).mT, y)
loss.backward()
print((peak() - before) / 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_logits_of_a_batch_never_exist_at_once() -> None:
    """They would take 64 MiB, and as much again for each copy; those of a chunk take 4 MiB."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}  # what is freed goes back at once

    def mebibytes(how: str) -> float:
        command = [sys.executable, "-c", MEMORY, how]
        return float(subprocess.run(command, check=True, capture_output=True, env=environment).stdout)

    found = {how: mebibytes(how) for how in ("chunks", "whole")}
    assert found["whole"] > 128
    assert found["chunks"] < 48


def test_it_learns_and_knows_how_many_tokens_it_predicts() -> None:
    flat = FlatModule(PATH, "next_token", seed=1)
    theta, (x, y) = flat.theta(), texts(4)
    for _ in range(60):
        theta[:] -= np.float32(0.5) * flat.gradient(theta, x, y).gradient
    step = flat.gradient(theta, x, y)
    loss, accuracy = flat.evaluate(theta, x, y, batch=3)
    assert step.loss < np.log(50) - 0.5
    right = (flat.module.logits(torch.from_numpy(x)).argmax(2).numpy() == y).mean()  # type: ignore[operator]
    assert loss == pytest.approx(step.loss, rel=1e-4)
    assert accuracy == pytest.approx(right, abs=0.02)


@pytest.mark.slow
def test_it_exports_and_its_step_holds_no_logits_of_all_positions() -> None:
    """export_model compares both graphs with torch. 4 texts of 128 tokens have logits of 4 MiB."""
    sizes = "vocabulary=2048, width=16, blocks=1, heads=2, context=128"
    path = f"edgeflock.client.zoo:LanguageModel({sizes})"
    x, y = texts(4, 128)
    graph = read(export_model(path, "next_token", x, y).step)
    shapes = {
        f"theta/{tensor.name}": tensor.shape for tensor in FlatModule(path, "next_token").layout.tensors
    }
    needed = {**shapes, "x": x.shape, "y": y.shape}
    assert footprint(graph, {port.name: needed[port.name] for port in graph.inputs}).octets < 4 << 20


def test_a_server_may_name_the_loss_and_a_target_that_is_no_token_is_refused() -> None:
    assert LOSSES["next_token"].right is not None
    x, y = texts(2)
    y[0, 3] = 50
    with pytest.raises((RuntimeError, IndexError)):
        FlatModule(PATH, "next_token").gradient(FlatModule(PATH, "next_token").theta(), x, y)
