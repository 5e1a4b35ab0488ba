"""The run in its directory: model, data, identities, and the engine as it was left."""

import logging
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.defence import DEFENCES
from edgeflock.server.descent import Place
from edgeflock.server.engine import Engine, check_limits
from edgeflock.server.identity import (
    ADMIN_TOKEN,
    ELSEWHERE,
    Audit,
    Authority,
    Certificate,
    Register,
    demand,
    keys_of,
    own_certificate,
    pin_of_file,
    server_tls,
    share,
)
from edgeflock.server.ledger import (
    OFFERED,
    Account,
    Claim,
    Waiting,
    claimed,
    is_shared,
    keep_offered,
    largest_step,
    write_whole,
)
from edgeflock.server.operations import trackers
from edgeflock.server.operations.divergence import Suspecting
from edgeflock.server.operations.evaluation import Evaluate, Keep, Metrics
from edgeflock.server.operations.guarding import Look
from edgeflock.server.operations.listeners import Listening
from edgeflock.server.operations.saved import safetensors_of
from edgeflock.shared.data import datasets
from edgeflock.shared.data.datasets import Dataset, Stored
from edgeflock.shared.errors import ConfigError, Unauthorized
from edgeflock.shared.identity import Token, is_loopback
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.fields import Fields, described, rows
from edgeflock.shared.model.layout import NOTHING, Beside, Layout
from edgeflock.shared.model.start import Start
from edgeflock.shared.model.trial import SAMPLES, Trial, trial
from edgeflock.shared.protocol.app import App, Arrays, encode
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.settings.config import Config

if TYPE_CHECKING:
    from torch import nn

    from edgeflock.server.scoring import Own, Scores
    from edgeflock.shared.model.torch_module import FlatModule, Make

log = logging.getLogger(__name__)

BEST = "best.safetensors"
"""The model that had the best evaluation, beside the journal."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a program has at hand that settings cannot name."""

    make: "Make | None" = None
    """Builds the module that model.module names."""
    held_out: Dataset | None = None
    """In the place of model.data."""
    judge: "Callable[[nn.Module], tuple[float, float | None]] | None" = None
    """(loss, accuracy) of a module, in the place of both."""
    listening: Listening = Listening()
    metrics: "Mapping[str, Own]" = field(default_factory=dict)
    """Beside those that model.metrics names."""


@dataclass(frozen=True, slots=True)
class HostedRun:
    """What create_app needs of a run."""

    run: str
    register: Register | None
    """None: everybody may take part and look, and nobody act."""
    engine: Engine
    evaluate: Evaluate | None
    history: list[Evaluation]
    accounts: list[Account]
    suspecting: Suspecting = lambda after, until: None
    offered: Path | None = None
    """The file that devices load the first model from, if they cannot make it."""
    tls: ssl.SSLContext | None = None
    """To listen with; None: plain HTTP."""
    pin: bytes = b""
    """Of the public key that devices are shown; empty: they compare none."""
    audit: Audit | None = None
    input: tuple[int, ...] | None = None
    """The shape of a sample's x, if it is known."""
    described: Description | None = None
    """What its numbers are, if they have names or units."""
    authority: Authority | None = None
    """That signs devices' certificates, over TLS."""
    make: "Make | None" = None
    """Builds the model, if no import string does."""
    keep: Keep = lambda theta, evaluation: None
    """Gets each model that is better than all before it."""
    listening: Listening = Listening()
    beside: Beside = NOTHING
    """What a saved model has beside theta."""
    app: bytes = b""
    """What devices' own apps are told (protocol/app.py)."""
    metrics: Metrics = dict
    """What the last `evaluate` came to besides."""
    look: Look | None = None
    """The gradient that the guard trusts, if it wants one."""
    lost: Callable[[], str] = str
    """Why the run is no longer this server's; empty while it is."""


@dataclass(frozen=True, slots=True)
class _Model:
    """What a run trains, and how its server judges it."""

    layout: Layout
    theta: NDArray[np.float32]
    """The first: float32 [P + B]."""
    evaluate: Evaluate | None
    start: Start | None = None
    input: tuple[int, ...] | None = None
    app: bytes = b""
    beside: Beside = NOTHING
    described: Description | None = None
    tried: Trial | None = None
    """What a first step came to."""
    metrics: Metrics = dict
    look: Look | None = None


@contextmanager
def open_run(
    config: Config, given: Given = Given(), wait: Waiting | None = None, place: Place | None = None
) -> Iterator[HostedRun]:
    """Begin the run that `config` describes, or take it up where it was left. While another server hosts it,
    `wait` is called again and again, as `Waiting` says; it raises to give up. Without it that is an error.
    What is kept of parameters lies where `place` puts it, or where config.scale says (ledger/claim.py).

    The run is this process's while the context lasts; then it may be opened again, also after a failure.
    Raises ConfigError if the model, the data or the directory cannot serve.
    """
    trackers.check(config.run.trackers)
    listening = given.listening.beside(config.run)
    model = _of_arrays(config) if config.model.arrays else _of_a_module(config, given)
    if listening.stop is not None and model.evaluate is None:
        raise ConfigError("run.stop needs evaluations, and there are no data for them; set model.data")
    theta = model.theta
    directory = Path(config.run.directory)
    run = claimed(directory, "run.directory", model.layout, theta, config, model.start, wait, place)
    with run as claim:
        first = claim.journal.snapshot(first=True).theta
        if config.model.weights and first.tobytes() != theta.tobytes():
            raise ConfigError(
                f"run.directory = {str(directory)!r} holds a run that began with other weights than "
                f"model.weights = {config.model.weights!r}; choose another one, or leave model.weights out"
            )
        offered = _offer(claim, directory, first) if claim.engine.start is None else None
        if model.tried is not None:
            log.info("%s on %s: %s", config.model.module, config.model.data or "data at hand", model.tried)
        history, accounts = claim.journal.evaluations(), claim.journal.accounts()
        suspecting = partial(largest_step, claim.journal, model.layout)
        tls, pin = line_of(config, directory)
        authority = authority_of(config, directory, tls)
        if is_shared(config.journal.url):
            write_whole(directory / ELSEWHERE, f"{config.journal.url}\n".encode())
        with closing(Register(directory)) as register:
            claim.journal.when_lost(register.db.shut)
            register.listens(register.url, pin)
            _operators(register, directory)
            yield HostedRun(
                claim.run,
                register,
                claim.engine,
                model.evaluate,
                history,
                accounts,
                suspecting,
                offered,
                tls,
                pin,
                Audit(directory),
                model.input,
                model.described,
                authority,
                given.make,
                partial(_keep_best, directory, model.layout, config.model.module, claim.run, model.beside),
                listening,
                model.beside,
                model.app,
                model.metrics,
                model.look,
                claim.journal.lost,
            )


def _of_arrays(config: Config) -> _Model:
    """Without torch."""
    from edgeflock.server import arrays as files

    arrays, theta = files.read(config.model)
    check_limits(config, arrays.layout)
    if _trusts(config):
        raise ConfigError(
            f"defence.mode = {config.defence.mode!r} needs gradients of the server's own, which a file of "
            "arrays has not; set defence.mode = 'clip'"
        )
    evaluate = files.judge(config.model, arrays)
    _check_watched(config, evaluated=evaluate is not None)
    return _Model(arrays.layout, theta, evaluate, app=_told(config, arrays))


def _of_a_module(config: Config, given: Given) -> _Model:
    # torch takes seconds to import and only hosting needs it.
    from edgeflock.server.scoring import Scores
    from edgeflock.server.weights import first_model
    from edgeflock.shared.model.torch_module import FlatModule

    if config.model.evaluate:
        raise ConfigError(
            f"model.evaluate = {config.model.evaluate!r} is of arrays, and model.module = "
            f"{config.model.module!r} is a torch module, which is evaluated on model.data: leave it out"
        )
    flat = FlatModule(config.model.module, config.model.loss, config.run.seed, given.make)
    check_limits(config, flat.layout)
    theta, start = first_model(flat, config.model.weights, config.run.seed)
    beside = flat.beside()
    held_out: Dataset | Stored | None = given.held_out
    if held_out is None and config.model.data:
        held_out = datasets.opened(config.model.data, "test")
    look: Look | None = None
    if _trusts(config):
        look, held_out = _looking(config, given, held_out)
    evaluate: Evaluate | None = None
    tried: Trial | None = None
    scores = Scores(config.model.metrics, given.metrics)
    if scores and (given.judge is not None or held_out is None):
        raise ConfigError(
            f"model.metrics = {config.model.metrics or list(given.metrics)} are of held-out data: set "
            "model.data, or leave them out"
        )
    if given.judge is not None:
        evaluate = partial(_judged, flat, given.judge)
    elif held_out is not None:
        evaluate, tried = _evaluation(config, flat, theta, held_out, scores)
    _check_watched(config, evaluated=evaluate is not None)
    shape = _input(config, flat.example, held_out)
    layout, told = flat.layout, b""
    if config.client_config.model_extra or config.run.evaluate_on_devices:
        told = _told(config, Arrays.like(layout))
    described = None if held_out is None else held_out.described.told
    return _Model(layout, theta, evaluate, start, shape, told, beside, described, tried, scores.numbers, look)


def _trusts(config: Config) -> bool:
    """Whether the defence goes by a gradient of the server's own."""
    return config.defence.mode != "none" and DEFENCES.chosen(config.defence.mode).trusts


def _looking(config: Config, given: Given, held_out: Dataset | Stored | None) -> tuple[Look, Dataset]:
    """(What computes that gradient, the samples that are left to evaluate on)."""
    from edgeflock.server.trusting import set_apart, trusted
    from edgeflock.shared.model.torch_module import FlatModule

    if held_out is None:
        raise ConfigError(
            f"defence.mode = {config.defence.mode!r} sets held-out samples apart, and there are none; set "
            "model.data, or defence.mode = 'clip'"
        )
    samples, rest = set_apart(held_out)
    # A module of its own: the evaluator is at work at the same time.
    flat = FlatModule(config.model.module, config.model.loss, config.run.seed, given.make)
    return partial(trusted, flat, samples), rest


def _told(config: Config, arrays: Arrays) -> bytes:
    """What devices' own apps are told."""
    return encode(App(dict(config.client_config.model_extra or {}), config.run.evaluate_on_devices, arrays))


def _offer(claim: Claim, directory: Path, first: NDArray[np.float32]) -> Path:
    """The file that devices may load `first` from, the model at version 0."""
    try:
        claim.engine.offer(first, partial(keep_offered, directory))
    except OSError as error:
        raise ConfigError(
            f"run.directory = {str(directory)!r} has no room for the first model: {error}"
        ) from error
    return directory / OFFERED


def _keep_best(
    directory: Path,
    layout: Layout,
    model: str,
    run: str,
    beside: Beside,
    theta: NDArray[np.float32],
    evaluation: Evaluation,
) -> None:
    """Put the model into best.safetensors, whole or not at all. A disk that has no room stops no run."""
    try:
        write_whole(directory / BEST, safetensors_of(theta, layout, model, evaluation.version, run, beside))
    except OSError as error:
        log.warning("the best model so far, of version %d, is not kept: %s", evaluation.version, error)


def _check_watched(config: Config, *, evaluated: bool) -> None:
    """Raises ConfigError if something waits for evaluations, and there are none."""
    if evaluated:
        return
    waiting = {
        "run.accuracy": config.run.accuracy,
        "run.patience": config.run.patience,
        "run.on_evaluated": config.run.on_evaluated,
        "optimizer.schedule": config.optimizer.schedule if config.optimizer.schedule == "plateau" else "",
    }
    for key, value in waiting.items():
        if value:
            raise ConfigError(
                f"{key} = {value!r} needs evaluations, and there are no data for them; set model.data"
            )


def _evaluation(
    config: Config,
    flat: "FlatModule",
    theta: NDArray[np.float32],
    held_out: Dataset | Stored,
    scores: "Scores",
) -> tuple[Evaluate, Trial]:
    """(how to evaluate on the held-out data, what a first step on some of them came to). Raises ConfigError
    if the module cannot train on data like them, or one of `scores` has no use for them.
    """
    evaluate = flat.evaluate
    x, y = rows(held_out.x, slice(SAMPLES)), held_out.y[:SAMPLES]
    try:
        evaluate(theta, x, y, seen=scores.see)
        if y.dtype.kind == "i":  # the highest class, too
            top = [int(held_out.y.reshape(len(held_out), -1).max(axis=1).argmax())]
            evaluate(theta, rows(held_out.x, top), held_out.y[top])
        tried = trial(flat.gradient, theta, x, y)
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        raise ConfigError(
            f"model.module {config.model.module!r} does not fit model.data {config.model.data!r}: {error}"
        ) from error
    scores.check()
    return partial(_scored, flat, scores, held_out), tried


def _scored(
    flat: "FlatModule", scores: "Scores", held_out: Dataset | Stored, theta: NDArray[np.float32]
) -> tuple[float, float | None]:
    """(loss, accuracy) at theta; the `scores` have then seen all of it, whatever became of the last time."""
    scores.forget()
    return flat.evaluate(theta, held_out.x, held_out.y, seen=scores.see)


def _judged(
    flat: "FlatModule",
    judge: "Callable[[nn.Module], tuple[float, float | None]]",
    theta: NDArray[np.float32],
) -> tuple[float, float | None]:
    """What `judge` says of the module at theta."""
    return judge(flat.at(theta))


def _input(
    config: Config, example: Callable[[tuple[int, ...]], object], held_out: Dataset | Stored | None
) -> tuple[int, ...] | None:
    """The shape of a sample's x, of which the model can make an `example`; None if it is not known."""
    model = config.model
    if held_out is None:
        if model.input:
            example(tuple(model.input))
        return tuple(model.input) or None
    if isinstance(held_out.x, Fields):
        if model.input:
            raise ConfigError(
                f"model.input = {model.input}: samples of model.data = {model.data!r} have several fields, "
                f"{described(held_out.x)}; leave it empty"
            )
        return None
    shape: tuple[int, ...] = held_out.x.shape[1:]
    if model.input and tuple(model.input) != shape:
        raise ConfigError(
            f"model.input = {model.input}: samples of model.data = {model.data!r} have the shape "
            f"{list(shape)}; leave one of the two empty"
        )
    return shape


def line_of(config: Config, directory: Path) -> tuple[ssl.SSLContext | None, bytes]:
    """(TLS to listen with, pin of the public key that devices see). Raises ConfigError."""
    run = config.run
    plain = run.insecure or is_loopback(run.host)
    if is_shared(config.journal.url):
        directory.mkdir(0o700, parents=True, exist_ok=True)
        for own in keys_of(directory):
            share(config.journal.url, own)
    if run.open and not plain:
        raise ConfigError(
            f"run.open = true lets in everybody who reaches run.host = {run.host!r}: leave it out, listen on "
            "127.0.0.1, or allow it with run.insecure = true"
        )
    if run.key and not run.certificate:
        raise ConfigError("run.key is set, and run.certificate is not: they go together")
    if run.key:
        return server_tls(Certificate(Path(run.certificate), Path(run.key)))
    if run.certificate:
        if not plain:
            raise ConfigError(
                "run.certificate without run.key is that of a proxy in front, to which the server speaks "
                "plain HTTP: set run.host = 127.0.0.1 or run.insecure = true, or name its key"
            )
        return None, pin_of_file(Path(run.certificate))
    return (None, b"") if plain else server_tls(own_certificate(directory, run.host))


def authority_of(config: Config, directory: Path, tls: ssl.SSLContext | None) -> Authority | None:
    """What gives devices certificates; `tls` asks for them if the settings say so. Raises ConfigError."""
    who = config.run.client_certificates
    if tls is None:
        if who:
            raise ConfigError(
                f"run.client_certificates = {who!r} needs TLS, which the server does not speak here: listen "
                "beyond this machine without run.insecure, or set run.certificate and run.key"
            )
        return None
    authority = Authority(directory)
    if who:
        demand(tls, authority.pem, of_everybody=who == "everybody")
    return authority


def _operators(register: Register, directory: Path) -> None:
    """A token for the run's own operator, in a file that only its owner can read; made anew if it is lost,
    or if the server has another key.
    """
    path = directory / ADMIN_TOKEN
    kept = path.read_text().strip() if path.exists() else ""
    try:
        if register.who(kept).role == "admin" and Token.parse(kept).pin == register.pin:
            return
    except (Unauthorized, ConfigError):
        pass
    write_whole(path, f"{register.create('admin', reusable=True).text}\n".encode())
