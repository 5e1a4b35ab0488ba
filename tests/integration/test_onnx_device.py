"""A device without torch: it gets the graph from the server, and trains as the formulas say."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from random import Random

import numpy as np
import onnxruntime
import pytest
from aiohttp import web

from edgeflock.client.data.batcher import Shuffled
from edgeflock.client.identity import ClientIdentity, save_identity
from edgeflock.client.run import choosing, run_client
from edgeflock.client.transport import Link
from edgeflock.server.training_graph.served import ServedGraph
from edgeflock.shared.data import datasets
from edgeflock.shared.errors import ConfigError, NotExportable, Unauthorized
from edgeflock.shared.identity import new_key
from edgeflock.shared.protocol.messages import PROTOCOL, Hello
from edgeflock.shared.settings.client import ClientSettings
from edgeflock.shared.settings.model import ModelSettings
from tests.client.backends.graphs import INPUTS, LAYOUT, OUTPUTS, expected, model
from tests.hosting import hosting, initial_theta
from tests.integration.test_reconnect import at_once

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# The client against a server of its own kind.


class HandMade:
    """A GraphStore whose step is the hand-made one."""

    def __init__(self, model: ModelSettings, make: object = None) -> None:
        self.asked: list[str] = []

    async def get(self, kind: str) -> ServedGraph:
        self.asked.append(kind)
        octets = model()
        return ServedGraph(octets, sha256(octets).hexdigest())

    def wait_end(self, now: float) -> float:
        return 0.0

    async def close(self) -> None:
        pass


class Refusing(HandMade):
    async def get(self, kind: str) -> ServedGraph:
        raise NotExportable("package:Model: layer 3 is beyond ONNX")


def data(directory: Path) -> str:
    random = np.random.default_rng(1)
    x, y = (random.standard_normal((40, size)).astype(np.float32) for size in (INPUTS, OUTPUTS))
    np.savez(directory / "data.npz", x_train=x, y_train=y)
    return f"npz:{directory / 'data.npz'}"


RUN = (
    "end.updates=30",
    "local.batch=8",
    "compression.select=1",
    "compression.values=f32",
    "coordination.rule=none",
    "coordination.learning_rate=0.05",
    "model.module=theirs:Net",
)


@pytest.mark.parametrize("backend", ["onnx", "auto"])
async def test_a_device_trains_a_model_that_it_has_no_code_of(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """theirs:Net does not exist: torch could not train it, and may not by itself."""
    monkeypatch.setattr("edgeflock.server.app.GraphStore", HandMade)
    caplog.set_level(logging.INFO, "edgeflock.client")
    async with hosting(tmp_path, *RUN, layout=LAYOUT, closed=True) as hosted:
        save_identity(hosted.enrol("pi"), tmp_path / "identity.json")
        settings = ClientSettings.model_validate(
            {
                "identity": str(tmp_path / "identity.json"),
                "data": data(tmp_path),
                "backend": backend,
            }
        )
        progress = await run_client(settings)
        assert (progress.updates, progress.samples) == (30, 240)
        said = [text for text in caplog.messages if text.startswith(("connected", "waiting", "trains"))]
        assert [text.split()[0] for text in said] == ["connected", "waiting", "trains"]
        assert said[-1] == "trains theirs:Net with onnx"
        facts = hosted.registry.devices["pi"].facts
        assert facts["backend"] == f"onnxruntime {onnxruntime.__version__}"
        reached = hosted.engine.parameters.theta.astype(float)
    # The same batches, by the formulas: dense SGD, and statistics that follow by a tenth each time.
    theta = initial_theta(LAYOUT.size).astype(float)
    batches = Shuffled(datasets.load(settings.data, "train"), np.random.default_rng([0, *b"pi"]))
    trained = LAYOUT.parameters.size
    for _ in range(30):
        x, y = batches.take(8)
        _, gradient, statistics = expected(theta, x.astype(float), y.astype(float))
        theta[:trained] -= 0.05 * gradient
        theta[trained:] += (statistics - theta[trained:]) / 10
    np.testing.assert_allclose(reached[:trained], theta[:trained], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(reached[trained:], theta[trained:], rtol=1e-2, atol=1e-2)  # sent as float16


async def test_a_model_without_a_graph_ends_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeflock.server.app.GraphStore", Refusing)
    async with hosting(tmp_path, *RUN, layout=LAYOUT) as hosted:
        settings = ClientSettings(
            server=f"http://127.0.0.1:{hosted.port}", name="pi", data=data(tmp_path), backend="onnx"
        )
        with pytest.raises(ConfigError, match="gives no graph: package:Model: layer 3 is beyond ONNX"):
            await run_client(settings)


async def test_data_that_nobody_named_and_that_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever forgot --data is not to look for digits."""
    monkeypatch.setattr("edgeflock.server.app.GraphStore", HandMade)
    async with hosting(tmp_path, *RUN, layout=LAYOUT) as hosted:
        server = f"http://127.0.0.1:{hosted.port}"
        with pytest.raises(ConfigError, match=r"client\.data is not set.*digits:.*--data csv:PATH"):
            await run_client(ClientSettings(server=server, name="pi", backend="onnx"))
        with pytest.raises(ConfigError, match="^theirs:Net cannot train on inputs"):
            await run_client(ClientSettings(server=server, name="pi", backend="onnx", data="digits:"))


async def test_torch_that_turns_out_not_to_be_allowed_is_put_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the Welcome a device with both expects to train a model of the zoo, and says so."""
    monkeypatch.setattr("edgeflock.server.app.GraphStore", HandMade)
    reported: list[str] = []

    def engine(kind: str) -> str:
        reported.append(kind)
        return kind

    monkeypatch.setattr(choosing, "_engine", engine)
    async with hosting(tmp_path, *RUN, layout=LAYOUT) as hosted:
        settings = ClientSettings(server=f"http://127.0.0.1:{hosted.port}", name="pi", data=data(tmp_path))
        assert (await run_client(settings)).updates == 30
        assert hosted.registry.devices["pi"].facts["backend"] == "onnx"
    assert reported == ["torch", "onnx"]


# Link.graph against tiny servers.


@asynccontextmanager
async def answering(handler: Handler) -> AsyncIterator[Link]:
    """A link to a server whose graphs are what `handler` answers."""
    app = web.Application()
    app.router.add_get("/v1/graphs/{kind}", handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    hello = Hello(PROTOCOL, "pi", b"", {})
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    identity = ClientIdentity(url, "pi", "secret", new_key(), bytes(16))
    try:
        async with Link(url, identity, hello, Random(0), at_once) as device:
            yield device
    finally:
        await runner.cleanup()


async def test_a_graph_is_sent_once_and_then_only_if_it_changed() -> None:
    graphs = {"step": b"one", "evaluation": b"two"}
    asked: list[tuple[str, str | None, str | None]] = []

    async def handler(request: web.Request) -> web.Response:
        kind = request.match_info["kind"]
        known = request.headers.get("If-None-Match")
        asked.append((kind, request.headers.get("Authorization"), known))
        etag = f'"{sha256(graphs[kind]).hexdigest()}"'
        if known == etag:
            return web.Response(status=304, headers={"ETag": etag})
        return web.Response(body=graphs[kind], headers={"ETag": etag})

    def tag(octets: bytes) -> str:
        return f'"{sha256(octets).hexdigest()}"'

    async with answering(handler) as device:
        assert await device.downloads.graph("step") == b"one"
        assert await device.downloads.graph("evaluation") == b"two"
        assert await device.downloads.graph("step") == b"one"
        graphs["step"] = b"three"
        assert await device.downloads.graph("step") == b"three"
        assert await device.downloads.graph("step") == b"three"
    token = "Bearer secret"
    assert asked == [
        ("step", token, None),
        ("evaluation", token, None),
        ("step", token, tag(b"one")),
        ("step", token, tag(b"one")),
        ("step", token, tag(b"three")),
    ]


def saying(status: int, code: str, detail: str) -> web.Response:
    return web.json_response({"code": code, "detail": detail}, status=status)


PASSING: dict[str, Callable[[], web.Response]] = {
    "stops": lambda: saying(503, "unavailable", "the server stops"),
    "many devices": lambda: saying(429, "too-many-devices", "later"),
    "a proxy's": lambda: web.Response(status=502, text="<html>"),
    "its own fault": lambda: web.Response(status=500),
}


@pytest.mark.parametrize("trouble", PASSING.values(), ids=PASSING.keys())
async def test_a_server_in_trouble_is_asked_again(trouble: Callable[[], web.Response]) -> None:
    attempts = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal attempts
        attempts += 1
        return trouble() if attempts < 4 else web.Response(body=b"graph")

    async with answering(handler) as device:
        assert await device.downloads.graph("step") == b"graph"
    assert attempts == 4


async def test_a_server_that_hangs_up_is_asked_again() -> None:
    attempts = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            assert request.transport is not None
            request.transport.abort()
        return web.Response(body=b"graph")

    async with answering(handler) as device:
        assert await device.downloads.graph("step") == b"graph"
    assert attempts == 3


FINAL: dict[str, tuple[Callable[[], web.Response], type[Exception], str]] = {
    "not exportable": (
        lambda: saying(422, "not-exportable", "Conv3d is beyond ONNX"),
        ConfigError,
        "v1/graphs/step gives no graph: Conv3d is beyond ONNX",
    ),
    "no graphs here": (lambda: web.Response(status=404), ConfigError, "gives no graph: 404 Not Found"),
    "another conflict": (lambda: saying(409, "busy", "no"), ConfigError, "gives no graph: no"),
    "JSON of another kind": (lambda: web.json_response(["no"], status=409), ConfigError, "409 Conflict"),
    "no JSON after all": (
        lambda: web.Response(status=422, body=b"{", content_type="application/json"),
        ConfigError,
        "gives no graph: 422",
    ),
    "a stranger": (lambda: saying(401, "unauthorized", "who?"), Unauthorized, "client join"),
}


@pytest.mark.parametrize(("answer", "error", "said"), FINAL.values(), ids=FINAL.keys())
async def test_what_no_retry_can_mend_is_raised_at_once(
    answer: Callable[[], web.Response], error: type[Exception], said: str
) -> None:
    attempts = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal attempts
        attempts += 1
        return answer()

    async with answering(handler) as device:
        with pytest.raises(error, match=said):
            await device.downloads.graph("step")
    assert attempts == 1
