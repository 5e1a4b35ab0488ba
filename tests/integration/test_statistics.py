"""Running statistics that cannot be, at a server over real sockets: the sender is named, and nobody else."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgeflock.server.hosting.run import open_run
from edgeflock.shared.codecs import values
from edgeflock.shared.data import datasets
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.protocol.messages import Receipt, Refusal, Update
from tests.integration.foreign_client import joined
from tests.integration.operator import operating
from tests.integration.test_divergence import ask, config_of, dense, served


@pytest.mark.slow
async def test_a_negative_variance_is_refused_and_its_sender_named(tmp_path: Path) -> None:
    """As often as it comes: an honest device goes on, and no evaluation says that the run has diverged."""
    config = config_of(tmp_path, "model.module=tests.devices.emulation.fleets:Normed", "evaluation.every=0.1")
    flat, random = (
        FlatModule(config.model.module, config.model.loss, config.model.seed),
        np.random.default_rng(0),
    )
    data = datasets.load("digits", "train")

    def update(theta: np.ndarray, sequence: int, base: int) -> Update:
        batch = random.choice(len(data.y), 128, replace=False)
        found = flat.gradient(theta, data.x[batch], data.y[batch])
        plain = dense(sequence, base, found.gradient)
        return replace(plain, values=plain.values + values.encode_statistics(found.statistics))

    with open_run(config) as hosted:
        engine = hosted.engine
        async with served(config, hosted) as port:
            async with joined(port, "hostile") as (bad, _), joined(port, "honest") as (good, _):
                for number in range(1, 9):
                    version, theta = engine.theta()
                    assert isinstance(await ask(good, update(theta, number, version)), Receipt)
                    version, theta = engine.theta()
                    negative = update(theta, 1, version)
                    negative = replace(negative, values=negative.values[:-2] + b"\0\xbc")
                    answer = await ask(bad, negative)
                    assert isinstance(answer, Refusal)
                    assert (answer.code, answer.sequence) == ("bad-statistics", 1)
                    assert answer.detail.startswith(
                        "1.running_var[7] = -1 is a running variance, which is never"
                    )
                    assert engine.theta()[1].tobytes() == theta.tobytes()
                async with operating(port) as operator:
                    while not (status := json.loads((await operator.get("/v1/status"))[1]))["findings"]:
                        await asyncio.sleep(0.05)
            assert [(one["kind"], one["device"]) for one in status["findings"]] == [("refused", "hostile")]
            assert status["state"] == "training"
            assert (engine.theta()[1][-8:] > 0).all()
