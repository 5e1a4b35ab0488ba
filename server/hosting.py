"""The run in its directory: model, data, tokens, and the engine as it was left."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.engine import Engine, check_limits
from edgeflock.server.ledger import OFFERED, Account, Claim, claimed, keep_offered, largest_step
from edgeflock.server.operations import trackers
from edgeflock.server.operations.divergence import Suspecting
from edgeflock.server.operations.evaluation import Evaluate
from edgeflock.shared.data import datasets
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.settings.config import Config


@dataclass(frozen=True, slots=True)
class HostedRun:
    """What create_app needs of a run."""

    run: str
    token: str
    engine: Engine
    evaluate: Evaluate | None
    history: list[Evaluation]
    accounts: list[Account]
    admin_token: str = ""
    """Empty: nobody may act."""
    suspecting: Suspecting = lambda after, until: None
    offered: Path | None = None
    """The file that devices load the first model from, if they cannot make it."""
    viewer_token: str = ""
    """Empty: only admins may look, unless everybody may."""
    input: tuple[int, ...] | None = None
    """The shape of a sample's x, if it is known."""


@contextmanager
def open_run(config: Config) -> Iterator[HostedRun]:
    """Begin the run that `config` describes, or take it up where its directory left it.

    The run is this process's while the context lasts; then it may be opened again, also after a failure.
    Raises ConfigError if the model, the data or the directory cannot serve.
    """
    # torch takes seconds to import and only hosting needs it.
    import torch

    from edgeflock.server.weights import first_model
    from edgeflock.shared.model.torch_module import FlatModule

    torch.set_num_threads(1)
    flat = FlatModule(config.model.module, config.model.loss, config.run.seed)
    check_limits(config, flat.layout)
    trackers.check(config.run.trackers)
    theta, start = first_model(flat, config.model.weights, config.run.seed)
    held_out = datasets.load(config.model.data, "test") if config.model.data else None
    evaluate = None if held_out is None else _evaluation(config, flat.evaluate, theta, held_out)
    shape = _input(config, flat.example, held_out)
    directory = Path(config.run.directory)
    with claimed(directory, "run.directory", flat.layout, theta, config, start) as claim:
        first = claim.journal.snapshot(first=True).theta
        if config.model.weights and first.tobytes() != theta.tobytes():
            raise ConfigError(
                f"run.directory = {str(directory)!r} holds a run that began with other weights than "
                f"model.weights = {config.model.weights!r}; choose another one, or leave model.weights out"
            )
        offered = _offer(claim, directory, first) if claim.engine.start is None else None
        token = "" if config.run.open else config.run.token or _kept(directory, "token")
        admin_token = config.run.admin_token or _kept(directory, "admin-token")
        viewer_token = "" if config.run.open else config.run.viewer_token or _kept(directory, "viewer-token")
        if admin_token == token:
            raise ConfigError(
                "run.admin_token is run.token, so that every device could act; choose another one"
            )
        if viewer_token and viewer_token in (token, admin_token):
            raise ConfigError(
                "run.viewer_token is run.token or run.admin_token, so that it would not tell who it is; "
                "choose another one"
            )
        history, accounts = claim.journal.evaluations(), claim.journal.accounts()
        suspecting = partial(largest_step, claim.journal, flat.layout)
        yield HostedRun(
            claim.run,
            token,
            claim.engine,
            evaluate,
            history,
            accounts,
            admin_token,
            suspecting,
            offered,
            viewer_token,
            shape,
        )


def _offer(claim: Claim, directory: Path, first: NDArray[np.float32]) -> Path:
    """The file that devices may load `first` from, the model at version 0."""
    try:
        claim.engine.offer(first, partial(keep_offered, directory))
    except OSError as error:
        raise ConfigError(
            f"run.directory = {str(directory)!r} has no room for the first model: {error}"
        ) from error
    return directory / OFFERED


def _evaluation(
    config: Config,
    evaluate: Callable[..., tuple[float, float | None]],
    theta: NDArray[np.float32],
    held_out: Dataset,
) -> Evaluate:
    """`evaluate` on the held-out data."""
    try:
        evaluate(theta, held_out.x[:2], held_out.y[:2])
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        raise ConfigError(
            f"model.module {config.model.module!r} does not fit model.data {config.model.data!r}: {error}"
        ) from error
    return partial(evaluate, x=held_out.x, y=held_out.y)


def _input(
    config: Config, example: Callable[[tuple[int, ...]], object], held_out: Dataset | None
) -> tuple[int, ...] | None:
    """The shape of a sample's x, of which the model can make an `example`; None if it is not known."""
    model = config.model
    if held_out is None:
        if model.input:
            example(tuple(model.input))
        return tuple(model.input) or None
    shape = held_out.x.shape[1:]
    if model.input and tuple(model.input) != shape:
        raise ConfigError(
            f"model.input = {model.input}: samples of model.data = {model.data!r} have the shape "
            f"{list(shape)}; leave one of the two empty"
        )
    return shape


def _kept(directory: Path, name: str) -> str:
    """A secret in the run's directory, made up on first use and readable by its owner only."""
    path = directory / name
    kept = path.read_text().strip() if path.exists() else ""
    if not kept:
        # Whole or not at all: an empty secret would let everybody in.
        kept, fresh = secrets.token_urlsafe(24), directory / f"{name}.{os.getpid()}"
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(kept + "\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    return kept
