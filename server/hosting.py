"""The run in its directory: model, journal, token, and the parameters as they were left."""

import fcntl
import os
import secrets
import sqlite3
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from edgeflock.server import trackers
from edgeflock.server.engine import Bounds, Engine
from edgeflock.server.evaluation import Evaluate
from edgeflock.server.journal import Account, Evaluation, Journal
from edgeflock.server.limits import check_limits
from edgeflock.server.recovery import recover
from edgeflock.server.regime import Regime
from edgeflock.shared import datasets
from edgeflock.shared.config import Config
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.layout import Layout


@dataclass(frozen=True, slots=True)
class HostedRun:
    """What create_app needs of a run."""

    run: str
    token: str
    engine: Engine
    evaluate: Evaluate | None
    history: list[Evaluation]
    accounts: list[Account]
    lock: IO[str] | None = None
    """Held open for as long as the run is hosted: nobody else may write its journal."""
    admin_token: str = ""
    """Empty: nobody may act."""


def open_run(config: Config) -> HostedRun:
    """Begin the run that `config` describes, or take it up where its directory left it.

    Raises ConfigError if the model, the data or the directory cannot serve.
    """
    # torch takes seconds to import and only hosting needs it.
    import torch

    from edgeflock.shared.torch_module import FlatModule

    torch.set_num_threads(1)
    flat = FlatModule(config.model.module, config.model.loss, config.run.seed)
    layout = flat.layout
    check_limits(config, layout)
    trackers.check(config.run.trackers)
    evaluate = None
    if config.model.data:
        held_out = datasets.load(config.model.data, "test")
        evaluate = partial(flat.evaluate, x=held_out.x, y=held_out.y)
        try:
            flat.evaluate(flat.theta(), held_out.x[:2], held_out.y[:2])
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise ConfigError(
                f"model.module {config.model.module!r} does not fit model.data {config.model.data!r}: {error}"
            ) from error

    directory = Path(config.run.directory)
    run, journal, lock = open_journal(directory, "run.directory", config.model.module, layout, flat.theta())
    regime = Regime.of(config.coordination)
    bounds = Bounds(
        config.run.updates,
        config.limits.expansion_bytes,
        config.run.snapshot_every,
        config.run.keep_updates,
        config.limits.samples,
    )
    engine = Engine(journal, layout, recover(journal, layout, regime), bounds, config.model.pull)
    token = "" if config.run.open else config.run.token or _kept(directory, "token")
    admin_token = config.run.admin_token or _kept(directory, "admin-token")
    if admin_token == token:
        engine.abandon()
        if lock is not None:
            lock.close()
        raise ConfigError("run.admin_token is run.token, so that every device could act; choose another one")
    history, accounts = journal.evaluations(), journal.accounts()
    return HostedRun(run, token, engine, evaluate, history, accounts, lock, admin_token)


def open_journal(
    directory: Path | None, setting: str, model: str, layout: Layout, theta: NDArray[np.float32]
) -> tuple[str, Journal, IO[str] | None]:
    """(run, journal, claim) of the run of `model` in the directory that `setting` names; a new one has theta.

    The directory is this process's until the claim is closed. Without one all is in memory.
    Raises ConfigError if the directory cannot hold a run, or holds one of another layout; JournalDamaged or
    JournalTooNew.
    """
    with ExitStack() as opened:
        try:
            lock = None
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
                lock = opened.enter_context(_lock(directory, setting))
            journal = Journal(Path(":memory:") if directory is None else directory / "journal.sqlite")
            opened.callback(journal.abandon)
            known = journal.run()
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"{setting} = {str(directory)!r} cannot hold a run: {error}") from error
        if known is None:
            run = secrets.token_hex(8)
            journal.begin_run(run, model, layout, theta, time.time())
        else:
            run = known.run
            if known.layout.digest != layout.digest:
                raise ConfigError(
                    f"{directory} holds a run of {known.model}, whose layout differs from that of {model}; "
                    f"choose another {setting}"
                )
        opened.pop_all()
    return run, journal, lock


def _lock(directory: Path, setting: str) -> IO[str]:
    """Claim the directory for this process; the claim ends with it, however it ends."""
    file = open(directory / "lock", "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ConfigError(
            f"{setting} = {str(directory)!r}: another server hosts it; stop that one or choose another"
        ) from None
    return file


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
