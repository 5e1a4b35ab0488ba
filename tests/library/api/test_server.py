"""A server and devices in this program: what they do, and that nothing of them stays."""

import asyncio
import gc
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from aiohttp import ClientSession
from rich.console import Console
from safetensors.numpy import load_file

import edgeflock as ef
from edgeflock.operations.status import print_status
from edgeflock.server.evaluation.evaluator import Evaluator
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.shared.settings.config import parse
from tests.library.api.nets import LINEAR, Linear, accuracy, sides

SETTINGS: dict[str, Any] = {"evaluate_every": 0.05, "coordination": {"learning_rate": 0.5}}

TOGETHER: dict[str, Any] = {"coordination": {"learning_rate": 0.5, "mode": "rounds", "quorum": 2}}
"""Each of two devices has a part in every round: none is done before the other comes."""


def here(directory: Path, model: Any = LINEAR, **settings: Any) -> ef.Server:
    return ef.Server(model, directory=directory, **{**SETTINGS, **settings})


def device(server: ef.Server, **settings: Any) -> ef.Client:
    chosen = {"data": sides(), "backend": "torch", "model": LINEAR, "health": False}
    return ef.Client(server.url, token=server.token, **{**chosen, **settings})


def left() -> tuple[list[str], set[str], Any]:
    """The threads, open files and signal handlers of this process."""
    threads = sorted(thread.name for thread in threading.enumerate() if "asyncio_" not in thread.name)
    files = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            files.add(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # that of the listing
            continue
    return threads, files, (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))


@pytest.fixture
def nothing_stays(tmp_path: Path) -> Iterator[None]:
    """No thread, file, signal handler, frozen object; torch's threads and random numbers are as they were."""
    before, frozen = left(), gc.get_freeze_count()
    cores, random = torch.get_num_threads(), torch.get_rng_state()
    yield
    gc.collect()
    threads, files, handlers = left()
    until = time.monotonic() + 60
    while Counter(threads) - Counter(before[0]) and time.monotonic() < until:  # one may be about to end
        time.sleep(0.01)
        threads, files, handlers = left()
    assert not Counter(threads) - Counter(before[0])  # one of an earlier test may have gone meanwhile
    assert not [file for file in files - before[1] if str(tmp_path) in file or "socket" in file]
    assert handlers == before[2]
    assert gc.get_freeze_count() <= frozen  # one that the session has frozen may have gone
    assert torch.get_num_threads() == cores
    assert torch.equal(torch.get_rng_state(), random)


async def others() -> set[asyncio.Task[Any]]:
    """The tasks beside this one, once those that have ended are gone."""
    await asyncio.sleep(0)
    return asyncio.all_tasks() - {asyncio.current_task()}


async def test_a_run_from_its_first_event_to_the_model(tmp_path: Path, nothing_stays: None) -> None:
    x, y = sides()
    reported = []
    async with here(tmp_path / "run", updates=60, evaluate=(x, y), **TOGETHER) as server:
        async with asyncio.TaskGroup() as group:
            for part in ef.deal(x, y, 2):
                group.create_task(device(server, data=part).run())
            async for event in server.events():
                reported.append(event.kind)
            result = await server.until()
    assert (reported.count("joined"), reported[-1]) == (2, "finished")
    assert result.version == result.evaluations[-1].version == 60
    module = result.module()
    assert result.accuracy == accuracy(module, x, y) > 0.8
    result.save(tmp_path / "model.safetensors")
    kept = load_file(tmp_path / "model.safetensors")
    assert np.array_equal(kept["layer.weight"], module.state_dict()["layer.weight"].numpy())
    assert not await others()


async def test_the_loop_goes_on_while_a_run_opens(tmp_path: Path, nothing_stays: None) -> None:
    threads: list[str] = []

    def make() -> Linear:
        threads.append(threading.current_thread().name)
        return Linear()

    async with here(tmp_path, make):
        pass
    assert threads
    assert all(name.startswith("edgeflock-opening") for name in threads)


async def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    async with here(tmp_path, updates=5) as server:
        await device(server).run()
        first = await server.until()
    async with here(tmp_path, updates=7) as again:
        assert (again.run, again.version) == (first.run, 5)
        training = asyncio.create_task(device(again).run())
        assert (await again.until(updates=6)).version in (6, 7)
        await training
        assert (await again.until()).version == 7
    async with here(tmp_path, updates=7) as over:
        assert [event.kind async for event in over.events()] == []


async def test_an_operator_s_ways_are_the_library_s(tmp_path: Path) -> None:
    """Beside what a Server hands out: the same for a server that runs elsewhere."""
    async with here(tmp_path / "run", updates=5) as server:
        await device(server).run()
        admin = server.admin_token.read_text().strip()
        known = await ef.status(server.url, admin)
        assert (known["version"], known["feed"]["run"], known["state"]) == (5, server.run, "finished")
        with pytest.raises(ef.EdgeflockError, match="does not know this token"):
            await ef.status(server.url, "wrong")
        assert await ef.roll_back(server.url, admin, 3) == {"of": 3, "version": 6}
        saved = await asyncio.to_thread(ef.back_up, tmp_path / "run", tmp_path / "run.backup")
    back = ef.restore(tmp_path / "run.backup", tmp_path / "again", same_run=True)
    assert (saved.version, back.version, back.run) == (6, 6, saved.run)


def test_in_a_thread_of_another_program(tmp_path: Path, nothing_stays: None) -> None:
    """And two side by side in it, without a signal handler, which only a main thread may set."""

    async def both() -> list[int]:
        async with here(tmp_path / "a", open=True) as one, here(tmp_path / "b", open=True) as other:
            assert one.url != other.url
            return [one.version, other.version, len(one.token)]

    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(both())))
    thread.start()
    thread.join()
    assert found == [[0, 0, 0]]


async def test_a_function_judges_a_module_that_nobody_can_import(tmp_path: Path) -> None:
    class Own(Linear):
        pass

    given = Own()
    with torch.no_grad():
        given.layer.weight.fill_(3.0)
    seen: list[Any] = []

    def judge(module: Any) -> tuple[float, float]:
        seen.append(module.layer.weight.detach().clone())
        return 0.25, 0.75

    async with here(tmp_path, given, updates=3, evaluate=judge) as server:
        with torch.no_grad():
            given.layer.weight.fill_(0.0)  # the server has a copy
        training = asyncio.create_task(device(server, model=given).run())
        result = await server.until()
        await training
    assert (result.loss, result.accuracy) == (0.25, 0.75)
    assert torch.equal(seen[0], torch.full((2, 6), 3.0))
    assert isinstance(result.module(), Own)


async def test_a_device_trains_on_what_a_generator_yields(tmp_path: Path, nothing_stays: None) -> None:
    async def readings() -> AsyncGenerator[tuple[Any, int], None]:
        for one, side in zip(*sides(40), strict=True):
            yield one, int(side)

    def broken() -> Iterator[tuple[Any, int]]:
        yield X[0], int(Y[0])
        raise ZeroDivisionError("no sensor")

    own = {"batch_min": 4, "batch_max": 8, "directory": str(tmp_path / "device")}
    async with here(tmp_path / "run", ef.Model(LINEAR, example=X)) as server:
        streamed = device(server, data=readings(), **own)
        progress = await streamed.run()
        assert (progress.updates, progress.samples, server.version) == (5, 40, 5)
        assert streamed.account is not None
        assert (streamed.account.came, streamed.account.trained) == (40, 40)
        with pytest.raises(ef.ConfigError, match=r"python:.*broken'.*it raised ZeroDivisionError: no sensor"):
            await device(server, data=broken, **own).run()
    assert not await others()


async def test_a_program_is_told_of_updates_and_evaluations_in_order(tmp_path: Path) -> None:
    reported: list[Any] = []
    listening = {"on_update": reported.append, "on_evaluated": reported.append}
    async with here(tmp_path / "run", updates=20, evaluate=sides(), **TOGETHER, **listening) as server:
        async with asyncio.TaskGroup() as group:
            for name in ("one", "other"):
                group.create_task(device(server, name=name).run())
        result = await server.until()
    updates = [one for one in reported if hasattr(one, "device")]
    assert [one.version for one in updates] == list(range(1, 21))
    assert {one.device for one in updates} == {"one", "other"}
    assert all(one.samples == 10 and one.loss > 0 for one in updates)
    evaluations = [one._replace(classes=()) for one in reported if not hasattr(one, "device")]
    assert evaluations == [one._replace(classes=()) for one in result.evaluations]
    assert reported[-1].version == 20  # the evaluation of the last one


@pytest.mark.parametrize("waits", ["for its devices", "for the model", "for events"])
@pytest.mark.parametrize("where", ["on_update", "on_evaluated"])
async def test_what_a_function_raises_ends_the_run(
    tmp_path: Path, nothing_stays: None, where: str, waits: str
) -> None:
    def fail(news: Any) -> None:
        raise ZeroDivisionError(f"a fault of the program's at {news.version}")

    async def train() -> None:
        async with here(tmp_path, evaluate=sides(), **{where: fail}) as server:
            async with asyncio.TaskGroup() as group:
                group.create_task(device(server).run())
                if waits == "for the model":
                    await server.until(updates=1_000_000)
                elif waits == "for events":
                    async for _ in server.events():
                        pass

    with pytest.raises(ZeroDivisionError, match=r"a fault of the program's at \d+$"):
        await train()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert not await others()
    async with here(tmp_path):  # its lock and its journal are free
        pass


async def test_a_function_may_say_when_it_is_enough(tmp_path: Path) -> None:
    async with here(tmp_path / "run", evaluate=sides()) as server:
        training = asyncio.create_task(device(server).run())
        with pytest.raises(ZeroDivisionError):
            await server.until(stop=lambda one: 1 / 0)
        result = await server.until(stop=lambda one: one.version > 5)
        await training  # the run is over for devices, too
    assert 5 < result.evaluations[-1].version == result.version
    async with here(tmp_path / "unjudged") as server:
        with pytest.raises(
            ef.ConfigError, match=r"until\(stop=...\): nothing is evaluated; give the Server ev"
        ):
            await server.until(stop=lambda one: True)


NEWS: list[Any] = []


def enough(evaluation: Any) -> bool:
    return bool(evaluation.version > 5)


def heard(news: Any) -> None:
    NEWS.append(news)


def fails(news: Any) -> None:
    raise ZeroDivisionError(f"at {news.version}")


def named(directory: Path, **functions: str) -> ef.Server:
    """A server of settings as a file has them, which name functions of this file."""
    x, y = sides()
    np.savez(directory / "test.npz", x_test=x, y_test=y)
    overrides = [f"callbacks.{key}=tests.library.api.test_server:{name}" for key, name in functions.items()]
    overrides += [f"server.directory={directory}", "server.port=0", "evaluation.every=0.05"]
    overrides += [f"model.module={LINEAR}", f"model.data=npz:{directory}/test.npz"]
    return ef.Server.configured(parse(overrides=overrides, tables=CHOICES))


async def test_settings_name_functions_by_import_strings(tmp_path: Path) -> None:
    async def train(server: ef.Server) -> Any:
        async with server:
            training = asyncio.create_task(device(server).run())
            result = await server.until(updates=1 << 30)
            await training
            return result

    result = await train(named(tmp_path, stop="enough", on_update="heard"))
    assert 5 < result.evaluations[-1].version == result.version
    assert [one.version for one in NEWS] == list(range(1, result.version + 1))
    again = await train(named(tmp_path, stop="enough"))  # by the evaluations that there are
    assert again.version >= result.version
    with pytest.raises(ZeroDivisionError, match=r"at \d+$"):
        await train(named(tmp_path, on_evaluated="fails"))
    with pytest.raises(
        ef.ConfigError, match=r"callbacks.on_update = 'tests.*:lost': .* cannot be imported: Attr"
    ):
        named(tmp_path, on_update="lost")


@pytest.mark.slow
async def test_a_rule_and_a_loss_that_only_this_program_has(tmp_path: Path) -> None:
    """And again, from the journal, which has the rule by its name."""
    weighed: list[int] = []

    def rule(step: Any, version: int) -> float:
        weighed.append(version)
        return 0.5

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(output, target, label_smoothing=0.1)

    model = ef.Model(LINEAR, loss=loss)

    def again(updates: int) -> ef.Server:
        return ef.Server(model, directory=tmp_path, updates=updates, evaluate=sides(), coordination=rule)

    async with again(6) as server:
        async with asyncio.TaskGroup() as group:
            for backend in ("torch", "onnx"):
                group.create_task(device(server, model=model, backend=backend).run())
        result = await server.until()
    assert sorted(set(weighed)) == list(range(6))
    assert result.loss is not None
    assert result.loss > 0.1  # smoothed: it never gets lower than that
    async with again(8) as server:
        training = asyncio.create_task(device(server, model=model).run())
        await server.until()
        await training
    assert sorted(set(weighed)) == list(range(8))


async def test_an_optimizer_and_a_schedule_of_this_program(tmp_path: Path) -> None:
    rates: list[float] = []

    def kind(of: Any, theta: Any, memory: Any, where: Any, gradient: Any, rate: np.float32) -> None:
        rates.append(float(rate))
        theta[where] -= rate * np.sign(gradient)

    def schedule(how: Any, at: float) -> float:
        return 1.0 if at < 1 else 0.5

    how = {"kind": kind, "schedule": schedule}
    async with here(
        tmp_path,
        updates=2,
        optimizer=how,
        coordination={"mode": "buffer", "buffer": 1, "rule": "sqrt", "learning_rate": 0.5},
    ) as server:
        training = asyncio.create_task(device(server).run())
        await server.until()
        await training
    assert {0.5, 0.25} <= set(rates)
    assert here(tmp_path, optimizer=kind).config.optimizer.kind.endswith("<locals>.kind")


@pytest.mark.slow
@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError])
async def test_whatever_ends_it_nothing_is_left_behind(
    tmp_path: Path, nothing_stays: None, error: type[BaseException]
) -> None:
    training: asyncio.Task[Any] | None = None

    async def end_in_the_middle() -> None:
        nonlocal training
        async with here(tmp_path, evaluate=sides()) as server:
            training = asyncio.create_task(device(server, backend="onnx").run())
            async for event in server.events():
                if event.kind == "joined":  # by now a process exports, a thread evaluates
                    raise error

    with pytest.raises(error):
        await end_in_the_middle()
    assert training is not None
    training.cancel()
    await asyncio.gather(training, return_exceptions=True)
    assert not await others()
    async with here(tmp_path):  # its lock and its journal are free
        pass


async def test_cancelled_while_it_closes_it_closes_all_the_same(
    tmp_path: Path, nothing_stays: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, goes_on = asyncio.Event(), asyncio.Event()
    close = Evaluator.close

    async def slowly(self: Evaluator) -> None:
        closing.set()
        await goes_on.wait()
        await close(self)

    monkeypatch.setattr(Evaluator, "close", slowly)

    async def serve() -> None:
        async with here(tmp_path):
            pass

    serving = asyncio.create_task(serve())
    await closing.wait()
    for _ in range(3):
        serving.cancel()
        await asyncio.sleep(0)
    assert not serving.done()
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert not await others()


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
async def test_cancelled_while_it_opens_nothing_is_left_behind(
    tmp_path: Path, nothing_stays: None, turns: int
) -> None:
    opening = asyncio.create_task(here(tmp_path).__aenter__())
    for _ in range(turns):
        await asyncio.sleep(0)
    if not opening.cancel():
        await opening.result().__aexit__(None, None, None)
    await asyncio.gather(opening, return_exceptions=True)
    assert not await others()
    async with here(tmp_path):
        pass


async def test_a_server_that_cannot_go_on_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def die(self: Evaluator) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(Evaluator, "run", die)
    with pytest.raises(ef.EdgeflockError, match="the evaluator failed: ZeroDivisionError"):
        async with here(tmp_path, updates=5) as server:
            await server.until()


async def test_what_cannot_be_waited_for(tmp_path: Path) -> None:
    async with here(tmp_path / "endless") as server:
        with pytest.raises(ef.ConfigError, match=r"the run has no end; set updates of the Server, or say"):
            await server.until()
    async with here(tmp_path / "short", updates=5) as server:
        with pytest.raises(ef.ConfigError, match=r"until\(updates=9\): the run ends at updates=5"):
            await server.until(updates=9)
    with pytest.raises(ef.EdgeflockError, match="the server does not run: `async with Server"):
        await server.until()
    with pytest.raises(ef.ConfigError, match="has been used; make another one"):
        await server.__aenter__()


async def test_a_port_that_is_taken(tmp_path: Path, nothing_stays: None) -> None:
    async with here(tmp_path / "one") as server:
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(ef.EdgeflockError, match=rf"cannot listen on 127.0.0.1:{port}: .*server.port"):
            await here(tmp_path / "two", port=port).__aenter__()


ANYTHING: Any = 3
X, Y = sides(4)
ALONE: Any = X
WRONG: list[tuple[Any, str]] = [
    (
        lambda: ef.Server(LINEAR, bach=5),
        r"Server\(bach=...\): unknown setting; did you mean batch\?",
    ),
    (
        lambda: ef.Fleet(LINEAR, data="digits:", device=50),
        r"Fleet\(device=...\): unknown setting; did you mean devices\?",
    ),
    (
        lambda: ef.Server(LINEAR, learning_rate=5),
        r"learning_rate = 5 is outside a section; did you mean coordination.learning_rate\?",
    ),
    (lambda: ef.Server(LINEAR, batch="many"), r"edgeflock.Server: local.batch = 'many': must be a valid"),
    (
        lambda: ef.Server(LINEAR, local={"steps": 2}, local_steps=3),
        r"edgeflock.Server: local_steps= and local=\{'steps': ...\}: give one of them",
    ),
    (lambda: ef.Server(LINEAR, local=3, batch=3), r"edgeflock.Server: local = 3 is outside a section"),
    (
        lambda: ef.Server(LINEAR, run=dict(batch=3)),
        r"unknown key run[.]batch = 3; did you mean local.batch",
    ),
    (
        lambda: ef.Server(LINEAR, coordination={"rule": "adacom"}),
        r"edgeflock.Server: coordination.rule = 'adacom': must be .*did you mean 'adacomp'",
    ),
    (lambda: ef.Server(LINEAR, preset="recrod"), r"preset = 'recrod' is no preset; known are low"),
    (
        lambda: ef.Server(LINEAR, on_update=ANYTHING),
        r"Server\(on_update=...\) is a int; give a function of one",
    ),
    (
        lambda: ef.Server(LINEAR, on_evaluated=others),  # type: ignore[arg-type]
        r"Server\(on_evaluated=...\) is async, and nothing waits for it; give a plain function",
    ),
    (lambda: ef.Server(LINEAR, limits=3), r"edgeflock.Server: limits = 3 is outside a section"),
    (lambda: ef.Server(LINEAR, client={}), r"Server\(client=...\): settings of \[fleet\] go by their own"),
    (lambda: ef.Server(LINEAR, evaluate=(X, Y[:3])), r"\[4, 6\] and y \[3\]; give as many"),
    (lambda: ef.Server(LINEAR, evaluate=ALONE), r"Server\(evaluate=...\) is a ndarray; give \(x, y\)"),
    (lambda: ef.Server(LINEAR, evaluate=(["a"], ["b"])), r"evaluate=...\) holds no numbers: .*give \(x, y\)"),
    (
        lambda: ef.Server(ef.Model(LINEAR, example=X[:, :5]), evaluate=(X, Y)),
        r"samples have the shape \[6\], those of Model\(example=...\) \[5\]; leave the example out",
    ),
    (
        lambda: ef.Model(ANYTHING),
        r"Model\(3\): give a class or function that builds a torch module, a",
    ),
    (lambda: ef.Model(LINEAR, example=Y), r"example=...\) has the shape \[4\]; give a few samples"),
    (lambda: ef.Client("http://127.0.0.1:1", data=ANYTHING), r"Client\(data=...\) is a int; give \(x, y\)"),
    (
        lambda: ef.Client("http://127.0.0.1:1", data=(X, Y), low_priority=True),
        r"low_priority=True\): .* os.nice\(19\)",
    ),
    (
        lambda: ef.Client("http://127.0.0.1:1", data=(X, Y), backend="onyx"),
        r"edgeflock.Client: client.backend = 'onyx': must be .*did you mean 'onnx'",
    ),
    (lambda: ef.deal(X, Y, 5), r"deal: shares = 5, of 4 samples; there may be 1 to 4"),
]


@pytest.mark.parametrize(("make", "says"), WRONG)
def test_what_cannot_be_is_named_with_its_remedy(make: Any, says: str) -> None:
    with pytest.raises(ef.ConfigError, match=says):
        make()


def test_dealt_out_is_what_the_same_stored_data_would_be(tmp_path: Path) -> None:
    from edgeflock.shared.data import datasets

    x, y = sides(11)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    for number, part in enumerate(ef.deal(x, y, 3), 1):
        stored = datasets.load(f"npz:{tmp_path}/data.npz?part={number}/3", "train")
        assert part.x.tobytes() == stored.x.tobytes()
        assert part.y.tobytes() == stored.y.tobytes()


async def test_metrics_by_name_and_by_function_reach_whoever_looks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = sides()
    reported: list[Any] = []
    sizes: list[tuple[int, int]] = []

    def wrong(outputs: torch.Tensor, targets: torch.Tensor) -> float:
        sizes.append((len(outputs), len(targets)))
        return float((outputs.argmax(1) != targets).sum())

    async with here(
        tmp_path, updates=5, evaluate=(x, y), metrics={"wrong": wrong}, on_evaluated=reported.append
    ) as server:
        training = asyncio.create_task(device(server).run())
        result = await server.until()
        await training
        secret = server.admin_token.read_text().strip()
        async with ClientSession(headers={"Authorization": f"Bearer {secret}"}) as http:
            async with http.get(f"{server.url}/v1/status") as response:
                status = await response.json()
            async with http.get(f"{server.url}/metrics") as response:
                lines = (await response.text()).splitlines()
    assert result.accuracy is not None
    expected = round((1 - result.accuracy) * len(y))
    assert result.evaluations[-1].metrics == reported[-1].metrics == {"wrong": expected}
    assert set(sizes[1:]) == {(len(y), len(y))}  # after a first try
    assert status["evaluation"]["metrics"] == {"wrong": expected}
    classes = status["evaluation"]["classes"]
    assert [of for _, of in classes] == np.bincount(y).tolist()
    assert sum(right for right, _ in classes) == len(y) - expected
    assert f'edgeflock_class_accuracy_ratio{{class="0"}} {classes[0][0] / classes[0][1]}' in lines
    assert f'edgeflock_evaluation_metric{{name="wrong"}} {float(expected)}' in lines
    print_status(Console(width=200), status)
    printed = capsys.readouterr().out
    assert f"wrong {expected}\n" in printed
    worst = min(range(len(classes)), key=lambda one: classes[one][0] / classes[one][1])
    assert f"Worst of {len(classes)} classes: {worst}, accuracy" in printed


async def test_metrics_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for metrics, says, evaluate in (
        (["mae"], "'mae' does not fit the model and its data", sides()),
        (["f2"], "'f2' is unknown; known are accuracy", sides()),
        (["f1"], "model.metrics = .'f1'. need held-out data: set model.data", lambda module: 0.0),
        (["f1"], "need held-out data", None),
    ):
        with pytest.raises(ef.ConfigError, match=says):
            await here(tmp_path, evaluate=evaluate, metrics=metrics).__aenter__()
    with pytest.raises(ef.ConfigError, match=r"Server\(metrics=...\) is a str"):
        here(tmp_path, metrics="f1")
