"""`edgeflock client --flower-app`: an unmodified ClientApp, in this process, at a server of our own."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeflock.api.server import Server
from edgeflock.client.flower.app import FlowerApp
from edgeflock.client.run import run_client
from edgeflock.client.training import WorkerProgress, attempts
from edgeflock.server.evaluation.federated import combine_evaluations
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.server.http.keys import EVALUATOR, HOST
from edgeflock.server.http.status import status
from edgeflock.shared.errors import ConfigError, TrainingFailed
from edgeflock.shared.settings.client import ClientSettings
from edgeflock.shared.settings.config import parse
from tests.flower.welcomes import welcome_of

PROJECT = """
[tool.flwr.app.components]
serverapp = "nowhere:app"
clientapp = "{package}.client_app:app"
[tool.flwr.app.config]
local-epochs = 2
model.depth = 3
"""

APP = """
import json
from pathlib import Path
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

SEEN = Path(__file__).parent / "seen.jsonl"

def noted(message, context, call_next):
    reply = call_next(message, context)
    reply.content["from-the-mod"] = MetricRecord({{"by-mod": 1.0}})
    return reply

app = ClientApp(mods=[noted])

@app.train()
def train(message, context):
    told = dict(message.content["config"])
    model = {{name: array.numpy() for name, array in message.content["arrays"].items()}}
    calls = context.state.get("calls", ConfigRecord({{"number": 0}}))["number"] + 1
    context.state["calls"] = ConfigRecord({{"number": calls}})
    with SEEN.open("a") as file:
        types = {{name: str(array.dtype) for name, array in model.items()}}
        seen = dict(told=told, types=types, calls=calls, run=dict(context.run_config),
                    node=dict(context.node_config), w=float(model["w"][0]), n=int(model["n"]))
        file.write(json.dumps(seen) + "\\n")
    {body}
    trained = {{name: a + a.dtype.type(1) if a.dtype.kind == "f" else a for name, a in model.items()}}
    arrays = ArrayRecord({{name: Array(np.asarray(a)) for name, a in trained.items()}})
    metrics = MetricRecord({{"train_loss": 0.25, "num-examples": 40, "grid": [1.0, 2.0]}})
    return Message(RecordDict({{"arrays": arrays, "metrics": metrics}}), reply_to=message)

@app.evaluate()
def evaluate(message, context):
    w = float(message.content["arrays"]["w"].numpy()[0])
    metrics = MetricRecord({{"eval_loss": w, "num-examples": 30}})
    return Message(RecordDict({{"metrics": metrics}}), reply_to=message)
"""


def folder(place: Path, package: str, body: str = "pass") -> Path:
    """An app's folder. Python keeps what it has imported: each test has a package of its own."""
    (place / package).mkdir(parents=True)
    (place / package / "__init__.py").touch()
    (place / package / "client_app.py").write_text(APP.format(body=body))
    (place / "pyproject.toml").write_text(PROJECT.format(package=package))
    return place


@asynccontextmanager
async def serving(directory: Path, *settings: str) -> AsyncIterator[Server]:
    """Of every update all entries count, exactly."""
    np.savez(directory / "initial.npz", w=np.zeros(3, np.float32), n=np.array(7), b=np.zeros((), np.float64))
    asked = [
        *(f"model.module=arrays:{directory / 'initial.npz'}", f"server.directory={directory / 'run'}"),
        *("server.port=0", "server.open=true", "compression.select=1", "compression.values=f32"),
        *("coordination.average=0", "downlink.mode=exact", *settings),
    ]
    async with Server.configured(parse(overrides=asked, tables=CHOICES)) as server:
        yield server


async def client(server: Server, app: Path, **settings: Any) -> WorkerProgress:
    known = {"flower_app": str(app), "name": "pi", "directory": str(app / "cache"), "health": False}
    return await run_client(ClientSettings(server=server.url, **(known | settings)))


def seen(app: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in app.glob("*/seen.jsonl") for line in file.read_text().splitlines()]


async def test_a_clientapp_trains_as_it_is(tmp_path: Path) -> None:
    app = folder(tmp_path / "app", "native_trains")
    async with serving(tmp_path, "end.updates=3", "client_config.lr=0.1", "client_config.name=x") as server:
        progress = await client(server, app, node_config="partition-id=4 on=true")
        result = await server.until()
        (device,) = server._active.app[HOST].registry.devices.values()
    assert result.theta.tolist() == [3, 3, 3, 3], "each update adds one to all"
    assert (progress.updates, progress.samples, progress.loss) == (3, 120, 0.25)
    assert device.facts["backend"].startswith("flwr 1.4")  # type: ignore[union-attr]
    messages = seen(app)[:3]  # before it heard that the run is over it may have begun one more
    assert [m["told"] for m in messages] == [{"lr": 0.1, "name": "x", "server-round": n} for n in (1, 2, 3)]
    assert [m["w"] for m in messages] == [0, 1, 2]
    assert messages[0]["types"] == {"w": "float32", "n": "int64", "b": "float64"}, "as in the file, in order"
    assert {m["n"] for m in messages} == {7}
    assert messages[0]["run"] == {"local-epochs": 2, "model.depth": 3}
    assert messages[0]["node"] == {"partition-id": 4, "on": True}


async def test_what_an_app_keeps_survives_its_process(tmp_path: Path) -> None:
    app = folder(tmp_path / "app", "native_keeps")
    async with serving(tmp_path, "end.updates=2") as server:
        await client(server, app)
    async with serving(tmp_path, "end.updates=4") as server:
        await client(server, app)
    messages = seen(app)
    assert [m["calls"] for m in messages] == list(range(1, len(messages) + 1))
    assert {m["told"]["server-round"] for m in messages} >= {1, 2, 3, 4}, "it counts the run's updates"
    async with serving(tmp_path, "end.updates=1", f"server.directory={tmp_path / 'another'}") as server:
        await client(server, app)
    another = seen(app)[len(messages) :]
    assert another[0]["calls"] == 1, "another run begins at nothing"
    (kept,) = (app / "cache").glob("flower-*")
    kept.write_bytes(b"damaged")
    async with serving(tmp_path, "end.updates=2", f"server.directory={tmp_path / 'another'}") as server:
        await client(server, app)
    assert seen(app)[len(messages) + len(another)]["calls"] == 1


async def test_an_app_evaluates_where_the_run_asks_for_it(tmp_path: Path) -> None:
    app = folder(tmp_path / "app", "native_evaluates")
    async with serving(tmp_path, "end.updates=4", "evaluation.on_devices=1") as server:
        await client(server, app)
        (device,) = server._active.app[HOST].registry.devices.values()
        facts, known = dict(device.statistics.telemetry), server._active.app
        reported = status(known[HOST], known[EVALUATOR], (), (), 0.0)
    # Each evaluation is reported with its update.
    assert reported["on_devices"] == {"by-mod": 1.0, "eval_loss": 3.0, "num-examples": 30}
    assert facts["train.by-mod"] == 1, "the app's mods are applied"
    assert facts["train.num-examples"] == 40
    assert "train.grid" not in facts
    again = FlowerApp(str(app), "", "pi", tmp_path / "elsewhere")
    again.join(welcome_of({"w": np.zeros(3, np.float32), "n": np.array(7), "b": np.zeros(())}, evaluate=2))
    for theta, said in ((0, None), (5, 5.0), (6, 5.0)):
        again.gradient(np.full(4, theta, np.float32), *again.take(10))
        assert again.telemetry().get("eval.eval_loss") == said


FAILING = [
    ("raise KeyError('no such file')", "raised KeyError: 'no such file'"),
    ("del model['b']", "array 'b' is missing"),
    ("model['w'] = model['w'][:1]", r"array 'w' has shape \[1\] instead of \[3\]"),
    (
        "return Message(RecordDict(dict(message.content.array_records)), reply_to=message)",
        "lack 'num-examples'",
    ),
    ("return Message(RecordDict(), reply_to=message)", "0 ArrayRecords instead of one"),
]


FLAKY = "if attempt in (1, 2, 4, 5): raise OSError('the disk is full')"


@pytest.mark.parametrize("number", range(len(FAILING)))
async def test_an_app_that_always_fails_ends_its_device(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "back_off", lambda random: repeat(0.0))
    body, complaint = FAILING[number]
    app = folder(tmp_path / "app", f"native_fails_{number}", body)
    async with serving(tmp_path, "end.updates=3") as server:
        with pytest.raises(TrainingFailed, match=f"5 steps in a row failed: .*{complaint}"):
            await client(server, app)
        assert server.version == 0
    assert [message["told"]["server-round"] for message in seen(app)] == [1] * 5


async def test_an_app_that_fails_now_and_then_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Flower answers such a message with an error, and its node goes on, too."""
    monkeypatch.setattr(attempts, "back_off", lambda random: repeat(0.0))
    body = f"attempt = len(Path(__file__).with_name('seen.jsonl').read_text().splitlines())\n    {FLAKY}"
    app = folder(tmp_path / "app", "native_flaky", body)
    async with serving(tmp_path, "end.updates=3") as server:
        progress = await client(server, app)
        result = await server.until()
    assert (progress.updates, progress.failed) == (3, 4)
    assert result.theta.tolist() == [3, 3, 3, 3]
    assert "a step failed: the ClientApp in" in caplog.text
    assert "raised OSError: the disk is full; trying again in" in caplog.text


async def test_runs_of_single_gradients_are_not_for_apps(tmp_path: Path) -> None:
    app = folder(tmp_path / "app", "native_gradients")
    for settings, named in (
        ("coordination.mode=elastic", "elastic"),
        ("local.steps=5", "local.steps = 5"),
    ):
        directory = f"server.directory={tmp_path / named[:5]}"
        async with serving(tmp_path, settings, directory) as server:
            with pytest.raises(ConfigError, match=named):
                await client(server, app)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"data": "digits:"}, "client.data = 'digits:' is not of a Flower app"),
        ({"model": "theirs:Net"}, "client.model = 'theirs:Net' is not of a Flower app"),
        ({"flower_app": "/nowhere"}, "'/nowhere': its pyproject.toml cannot be read"),
        ({"node_config": "a=b=c"}, "client.node_config = 'a=b=c'"),
        ({"node_config": "a=0 b"}, "client.node_config = 'a=0 b': 'b' is no pair; write key=value"),
    ],
)
async def test_settings_that_cannot_be_are_named(
    settings: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    app = folder(tmp_path / "app", f"native_settings_{sum(map(ord, complaint))}")
    async with serving(tmp_path) as server:
        with pytest.raises(ConfigError, match=complaint):
            await client(server, app, **settings)


@pytest.mark.parametrize(
    ("project", "complaint"),
    [
        ("[tool.flwr.app]\n", "names no tool.flwr.app.components.clientapp"),
        ("[tool.flwr.app.components]\nclientapp = 'json:dumps'\n", "json:dumps is no ClientApp"),
        ("[tool.flwr.app.components]\nclientapp = 'not_there:app'\n", "not_there:app cannot be loaded: Mod"),
        ("[tool.flwr.app.components]\nclientapp = 'flwr.clientapp.client_app:x'\n", "flwr.clientapp"),
    ],
)
async def test_a_folder_without_a_clientapp_is_named(project: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(project)
    async with serving(tmp_path) as server:
        with pytest.raises(ConfigError, match=complaint):
            await client(server, tmp_path)


async def test_who_has_no_app_is_told_of_the_way(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        with pytest.raises(ConfigError, match="has no graph: devices train it with an app"):
            await run_client(ClientSettings(server=server.url, name="pi", backend="onnx"))


def test_devices_evaluations_count_by_their_examples() -> None:
    reported: list[dict[str, str | int | float]] = [
        {"eval.loss": 1.0, "eval.num-examples": 10, "cpu": 3},
        {"eval.loss": 2.0, "eval.acc": 0.5, "eval.num-examples": 30},
        {"eval.loss": 9.0},
        {"train.loss": 9.0},
    ]
    assert combine_evaluations(reported) == {"loss": 1.75, "acc": 0.5, "num-examples": 40}
    assert combine_evaluations([{"cpu": 3}]) is None
