"""What the library is for, on a page: a model, a server, devices, an emulated fleet, and a figure of both."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import edgeflock as ef
from tests.library.api.nets import Linear as Net
from tests.library.api.nets import accuracy, sides


@pytest.mark.slow
@pytest.mark.usefixtures("exports_in_this_process")
async def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (x, y), (x_test, y_test) = sides(400), sides(100)
    reported: list[str] = []

    model = ef.Model(Net, loss="cross_entropy", example=(x[:8], y[:8]))

    async with ef.Server(
        model,
        directory="run",
        port=0,
        updates=200,
        evaluate=(x_test, y_test),
        coordination={"learning_rate": 0.5},
        preset="low-bandwidth",
    ) as server:
        async with asyncio.TaskGroup() as group:
            for part in ef.deal(x, y, 4):
                device = ef.Client(server.url, token=server.token, data=part, backend="onnx")
                group.create_task(device.run())
            async for event in server.events():
                reported.append(event.kind)
            result = await server.until(updates=200)
    result.save("model.safetensors")
    net = result.module()

    fleet = ef.Fleet(model, data=(x, y), devices=20, profile="raspberry-pi-4", updates=100).run(seed=0)
    figure = ef.plot(fleet, result)

    assert (reported.count("joined"), reported[-1], result.version) == (4, "finished", 200)
    assert server.config.compression.select == 0.0005
    assert accuracy(net, x_test, y_test) == result.accuracy
    assert np.array_equal(
        load_file("model.safetensors")["layer.bias"], net.get_parameter("layer.bias").detach()
    )
    assert isinstance(net, Net)
    assert not torch.equal(net.layer.weight, Net().layer.weight)
    assert (fleet.outcome.updates, len(figure.axes[0].lines)) == (100, 2)
