"""A client process: settings in, training until the run is over."""

import asyncio
import logging
import os
import platform
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from edgeflock.client.backends import Backend
from edgeflock.client.data import Batches
from edgeflock.client.data.checks import Agreed
from edgeflock.client.data.open import batches_of, directory, is_stored, own_seed
from edgeflock.client.first_model import Kept, first_model
from edgeflock.client.health import Health, device_class, memory_of
from edgeflock.client.identity import Identity, default_place, keep, kept
from edgeflock.client.joining import urls_of
from edgeflock.client.machine import default_name
from edgeflock.client.neighbour import Pausing, Resting, rate_of, rules_of, share_of
from edgeflock.client.spool import Spool
from edgeflock.client.training import Progress, Trainer, Worker
from edgeflock.client.training.shards import Shards, only
from edgeflock.client.transport import Link
from edgeflock.shared.data.account import Account
from edgeflock.shared.errors import ConfigError, EdgeflockError
from edgeflock.shared.extras import install
from edgeflock.shared.model.calls import Call
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.losses import LOSSES
from edgeflock.shared.model.weights import Weights
from edgeflock.shared.protocol.messages import LONGEST_SHARDS, PROTOCOL, Facts, Hello, Model, Welcome
from edgeflock.shared.protocol.shown import shown

if TYPE_CHECKING:  # its pydantic is a quarter of the client's import time
    from edgeflock.client.data.injection import Injected
    from edgeflock.client.flower.app import FlowerApp
    from edgeflock.shared.model.torch_module import Make
    from edgeflock.shared.settings.client import ClientSettings

log = logging.getLogger(__name__)

ZOO = "edgeflock.client.zoo:"

Kind = Literal["onnx", "torch", "flower"]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
"""Of a shard."""

_NEEDS = {"onnx": "onnxruntime", "torch": "torch", "flower": "flwr"}
"""Backend -> the module without which it is not to be had."""

_NOT_OF_APPS = ("data", "shards", "share", "model", "graph_digest")
"""Settings that a Flower app has no use for."""


LAST_WORDS = 2.0
"""Seconds that a device which leaves takes to tell what became of its samples."""


def _quietly(account: Account) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a program has at hand that settings cannot name."""

    identity: Identity | None = None
    """What it joined with, in the place of client.identity; it is kept nowhere."""
    batches: Callable[[list[int]], Batches] | None = None
    """Of a seed of the device's own: in the place of client.data."""
    samples: Callable[..., Any] | None = None
    """A generator function, which client.data does not name but calls by a name."""
    make: "Make | None" = None
    """Builds the model, in the place of client.model."""
    threads: bool = True
    """Whether torch's threads, which are all of the process's, are to be client.threads."""


async def run_client(
    settings: "ClientSettings",
    at_end: Callable[[Account], None] = _quietly,
    given: Given = Given(),
) -> Progress:
    """Train for `settings.server` until its run is over, or this is cancelled.

    `at_end` is told what became of every sample, if they were a stream. Raises ConfigError, Diverged or
    SessionRefused.
    """
    identity, place = given.identity, None
    if identity is None:
        identity, place = identity_of(settings)
    known: dict[str, str] = {"name": settings.name or default_name()}
    if identity is not None:
        known = {"name": identity.name, "server": identity.server}
        if identity.graph:
            known["graph_digest"] = identity.graph.hex()
    settings = settings.model_copy(update=known)
    share, bandwidth = share_of(settings.cpu), rate_of(settings.bandwidth)
    pausing = Pausing(rules_of(settings.pause_on), says_why=settings.health)
    # Which model it is, only the Welcome says: most are of the zoo.
    named = shards_of(settings)
    app = _app(settings) if settings.flower_app else None
    hello = Hello(
        PROTOCOL,
        settings.name,
        b"",
        _facts(choose(settings, ZOO, given)),
        settings.share,
        shards=",".join(named),
    )
    memory = memory_of() // 2
    samples = _samples() if settings.share else 0
    # One thread for all computing: each has a heap of its own, and keeps what it once needed.
    with ThreadPoolExecutor(1) as thread, closing(Resting(share)) as resting:

        async def compute(function: Callable[..., Any], *arguments: Any) -> Any:
            return await asyncio.get_running_loop().run_in_executor(thread, function, *arguments)

        agreed = Agreed()

        async def build(welcome: Welcome) -> Trainer:
            agreed.shape = welcome.input  # samples come while the backend is made
            kind = choose(settings, welcome.model, given, welcome.loss)
            await link.introduce(_facts(kind))
            if app is not None:
                app.join(welcome)
                backend: Backend = app
            elif kind == "torch":
                backend = await compute(_torch, settings, welcome, given)
            else:
                backend = await compute(_onnx, settings, welcome, await link.graph("step"), memory)
            if named and not welcome.tasks:
                raise ConfigError(
                    f"client.shards = {settings.shards}: the run has no tasks (coordination.tasks of the "
                    "server); name all data in client.data instead"
                )
            with _is_named(data_is_named(settings, given)):
                await compute((injected or batches).begin, welcome, backend)
            if injected is not None:
                odds = welcome.alpha * (welcome.beta > 0)
                log.info("shares %.3g of a batch with other devices in %.3g of steps", welcome.beta, odds)
            log.info("trains %s with %s", shown(welcome.model), kind)
            resting.begin()
            return Trainer(backend, injected or batches, welcome, resting.rest)

        async def load(weights: Weights, layout: Layout) -> Model | None:
            kept = Kept(directory(settings), weights, settings.name)
            return await first_model(link.load, kept, weights, layout, compute)

        async with (
            AsyncExitStack() as opened,
            Link(
                settings.server,
                identity,
                hello,
                Random(),
                memory=memory,
                samples=samples,
                bandwidth=bandwidth,
                insecure=settings.insecure or (identity is not None and identity.insecure),
                renewed=partial(_renewed, place=place),
            ) as link,
        ):
            held: list[Batches]
            each = [settings.model_copy(update={"data": data}) for data in named.values()] or [settings]
            if app is not None:
                held = [app]
            elif given.batches is not None:
                held = [given.batches(own_seed(settings))]
            else:
                held = [
                    await opened.enter_async_context(batches_of(one, agreed, given.samples)) for one in each
                ]
            batches, shard_of = held[0], only
            if named:
                batches = shards = Shards(held)
                shard_of = shards.choose
            injected = _injected(settings, batches, link) if settings.share else None
            measured: Callable[[], Facts] = Health() if settings.health else dict

            def health() -> Facts:
                return {**measured(), **pausing.facts()}

            worker = Worker(
                *(link, build, injected or batches, compute, health, load),
                choose=shard_of,
                permitted=pausing.permitted,
                spool=_spool(settings, given),
            )
            await pausing.look()

            beside = [
                asyncio.create_task(worker.keep_telling(link.tell)),
                asyncio.create_task(pausing.watch(partial(worker.tell_now, link.tell))),
            ]
            reason = "finished: its part is done"
            try:
                progress = await worker.run()
            except BaseException as error:
                reason = _why(error)
                raise
            finally:
                for task in beside:
                    task.cancel()
                await asyncio.wait(beside)
                account = Account.of(worker.facts())
                if account is not None:
                    at_end(account)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LAST_WORDS):
                        if account is not None:
                            await link.tell(worker.facts())
                        await link.leave(reason)
            if injected is not None:
                log.info("samples: %d shared, %d received", injected.shared, injected.received)
            return progress


def data_is_named(settings: "ClientSettings", given: Given) -> bool:
    """Whether somebody said what to train on."""
    of_settings = "data" in settings.model_fields_set or settings.shards or settings.flower_app
    return bool(of_settings or given.batches or given.samples)


def _spool(settings: "ClientSettings", given: Given) -> Spool | None:
    """None where an update that was lost would come again: the samples of a stream's buffer do. Or where the
    device's name is not for a second time.
    """
    if settings.buffer or given.identity is not None:
        return None
    return Spool(directory(settings), settings.server, settings.name)


def _why(error: BaseException) -> str:
    """What the server is told of a device that ends with `error`: nothing that its data might have said."""
    if isinstance(error, asyncio.CancelledError):
        return "retired: stopped by its owner"
    if isinstance(error, ConfigError):
        return "error: its settings or its data do not fit the run; its own log says why"
    return f"error: {error if isinstance(error, EdgeflockError) else type(error).__name__}"


def identity_of(settings: "ClientSettings") -> tuple[Identity | None, Path]:
    """(what this device joined with, if it did, where that is kept). Raises ConfigError.

    What is kept for all of this user counts for its own server; a file that is named must be of the server
    and the name that the settings name, too.
    """
    place = Path(settings.identity) if settings.identity else default_place()
    if not settings.identity and not place.exists():
        return None, place
    identity = kept(place)
    named = "server" in settings.model_fields_set
    if named and urls_of(settings.server) != urls_of(identity.server):
        if not settings.identity:
            return None, place
        raise ConfigError(
            f"client.identity = {str(place)!r} is for {identity.server}, and client.server is "
            f"{settings.server}: leave one of them out"
        )
    if settings.name not in ("", identity.name):
        raise ConfigError(
            f"client.name = {settings.name!r}, but this device joined as {identity.name!r} "
            f"(client.identity = {str(place)!r}): leave client.name out, or join anew under that name"
        )
    if settings.graph_digest and identity.graph and settings.graph_digest != identity.graph.hex():
        raise ConfigError("client.graph_digest is not the one of the token that this device joined with")
    return identity, place


def _renewed(identity: Identity, place: Path | None) -> None:
    if place is not None:
        keep(identity, place)
        log.info("has another key and credential: %s", place)


def shards_of(settings: "ClientSettings") -> dict[str, str]:
    """name -> data of each shard. Raises ConfigError."""
    shards: dict[str, str] = {}
    for entry in settings.shards:
        name, equals, data = entry.partition("=")
        if not (equals and data and _NAME.fullmatch(name)) or name in shards:
            raise ConfigError(
                f"client.shards: {entry!r} must be NAME=DATA, e.g. north=npz:north.npz, with a name of its "
                "own of letters, digits, '.', '_' and '-'"
            )
        if not is_stored(data):
            raise ConfigError(f"client.shards: {entry!r}: a shard is stored data, not a stream")
        shards[name] = data
    if len(",".join(shards)) > LONGEST_SHARDS:
        raise ConfigError(
            f"client.shards: the names of {len(shards)} shards take more than {LONGEST_SHARDS} characters; "
            "choose shorter ones"
        )
    return shards


def _injected(settings: "ClientSettings", batches: Batches, link: Link) -> "Injected":
    """`batches`, sharing samples with other devices over `link`."""
    from edgeflock.client.data.injection import Injected

    random = np.random.default_rng(np.random.SeedSequence(own_seed(settings), spawn_key=(1,)))
    injected = Injected(batches, link.share, random, settings.batch_max)
    link.listen(injected.receive)
    return injected


def _samples() -> int:
    """Bytes of the longest record of others' samples."""
    from edgeflock.client.data.injection import LONGEST_RECORD

    return LONGEST_RECORD


def choose(
    settings: "ClientSettings", model: str, given: Given = Given(), loss: str = "cross_entropy"
) -> Kind:
    """What trains `model` here: `client.backend`, or of what is installed, torch if it may build the model.

    A server may name models of the zoo by itself, and losses that come of no import. Arguments of a module
    must be the owner's, too, and a loss by import string must be of the module that the owner named: what
    either does with its arguments, who named only the model has not said.

    Raises ConfigError if nothing does.
    """
    allowed = bool(settings.model or given.make) or (model.startswith(ZOO) and "(" not in model)
    named = settings.model
    if Call.of(model, "the server's model").name == Call.of(named, "client.model").name != "":
        allowed = allowed and named == model
    imported = ":" in loss.partition("(")[0] and not LOSSES.is_given(loss)
    if imported:
        allowed = allowed and loss.partition(":")[0] == named.partition(":")[0]
    # Looked for, not imported: torch takes seconds.
    here = {kind: find_spec(module) is not None for kind, module in _NEEDS.items()}
    wanted: Kind | Literal["auto"] = "flower" if settings.flower_app else settings.backend
    if wanted == "auto":
        if not (here["torch"] or here["onnx"]):
            raise ConfigError(
                f"nothing that trains is installed: {install('onnx')}, which is small, or {install('torch')}"
            )
        may = here["torch"] and not settings.graph_digest
        wanted = "torch" if may and (allowed or not here["onnx"]) else "onnx"
    if not here[wanted]:
        raise ConfigError(f"{_asked(settings)} needs {_NEEDS[wanted]}: {install(wanted)}")
    if wanted == "torch" and settings.graph_digest:
        raise ConfigError(
            "client.graph_digest pins a graph, and client.backend = 'torch' takes none: leave one of them out"
        )
    if wanted == "torch" and not allowed:
        with_it = f" with the loss {loss}, which must be of client.model's module" if imported else ""
        raise ConfigError(
            f"the server asks to train {model}{with_it}; a server may "
            f"only name models of {ZOO}... by itself. If you trust it, set client.model={model}; without its "
            "code, client.backend=onnx trains it"
        )
    return wanted


def _asked(settings: "ClientSettings") -> str:
    if settings.flower_app:
        return f"client.flower_app = {settings.flower_app!r}"
    return f"client.backend = {settings.backend!r}"


def _app(settings: "ClientSettings") -> "FlowerApp":
    """The Flower app that the settings name. Raises ConfigError."""
    for key in _NOT_OF_APPS:
        if key in settings.model_fields_set and (value := getattr(settings, key)):
            raise ConfigError(
                f"client.{key} = {value!r} is not of a Flower app, which has its own model and data: leave "
                "it out, or client.flower_app"
            )
    choose(settings, "")
    with _loading("flower"):
        from edgeflock.client.flower.app import FlowerApp

    return FlowerApp(settings.flower_app, settings.node_config, settings.name, directory(settings))


def _torch(settings: "ClientSettings", welcome: Welcome, given: Given) -> Backend:
    with _loading("torch"):
        from edgeflock.client.backends.torch import TorchBackend

    model = settings.model or welcome.model
    threads = settings.threads if given.threads else 0
    return TorchBackend(model, welcome.loss, seed=settings.seed, threads=threads, make=given.make)


def _onnx(settings: "ClientSettings", welcome: Welcome, graph: bytes, memory: int) -> Backend:
    """A graph can only compute, so it may be of any model; unless the owner wants one only."""
    from edgeflock.client.backends.onnx import OnnxBackend

    layout = Layout.of(welcome.layout)  # type: ignore[arg-type]  # the link has looked at it
    return OnnxBackend(
        graph,
        layout,
        threads=settings.threads,
        model=welcome.model,
        memory=memory,
        digest=settings.graph_digest,
    )


def _facts(kind: Kind) -> Facts:
    facts: Facts = {"backend": _engine(kind), "machine": platform.machine(), "cores": os.cpu_count() or 1}
    facts["memory"] = memory_of() >> 20
    known = device_class()
    return facts if known is None else {**facts, "class": known}


def _engine(kind: Kind) -> str:
    if kind in ("torch", "flower"):
        return f"{_NEEDS[kind]} {metadata.version(_NEEDS[kind])}"
    with _loading("onnx"):
        from edgeflock.client.backends.onnx import engine

    return engine()


@contextmanager
def _is_named(named: bool) -> Iterator[None]:
    """Data that do not fit, and that nobody has named, are the default's."""
    try:
        yield
    except ConfigError as error:
        if named:
            raise
        raise ConfigError(
            "client.data is not set, and its default, digits:, does not fit this run: name this device's "
            f"data, e.g. --data csv:PATH?label=COLUMN or --data npz:PATH ({error})"
        ) from error


@contextmanager
def _loading(kind: Kind) -> Iterator[None]:
    try:
        yield
    except ImportError as error:  # it is there: choose has seen to that
        raise ConfigError(f"{_NEEDS[kind]} cannot be loaded on this device: {error}") from error
