"""The run in its directory: model, data, identities, and the restored engine."""

import logging
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Place
from edgeflock.server.engine import Engine
from edgeflock.server.evaluation.best_model import info_of, save_best
from edgeflock.server.evaluation.evaluator import FindSuspect, SaveBest
from edgeflock.server.findings import REMEDY
from edgeflock.server.hosting.model import ModelSetup, model_of
from edgeflock.server.hosting.program_objects import NO_OBJECTS, ServerObjects
from edgeflock.server.hosting.tls import authority_of, server_context
from edgeflock.server.identity import Audit, Authority, Register, write_admin_token
from edgeflock.server.journal import DeviceTotals
from edgeflock.server.ledger import Claim, Waiting, claim_run, largest_step, save_base, save_first_model
from edgeflock.server.monitoring import trackers
from edgeflock.server.monitoring.listeners import Callbacks
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.held_out import Sketch, sketch_of
from edgeflock.shared.model.lora import Base
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.settings.config import Config

if TYPE_CHECKING:
    from edgeflock.shared.model.modules.building import Make

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HostedRun:
    """The parts of a run that create_app needs."""

    run: str
    register: Register
    audit: Audit
    engine: Engine
    model: ModelSetup
    history: list[Evaluation]
    accounts: list[DeviceTotals]
    find_suspect: FindSuspect = lambda after, until: None
    base: Base | None = None
    """The frozen part of the model, whose file is next to the journal."""
    tls: ssl.SSLContext | None = None
    """TLS to listen with; None: plain HTTP."""
    pin: bytes = b""
    """The pin of the public key that devices see; empty: they compare none."""
    description: Description | None = None
    """The description of samples, if they have names or units."""
    held_out: Sketch | None = None
    """A sketch of the rows that the model is evaluated on."""
    authority: Authority | None = None
    """Signs devices' certificates, over TLS."""
    make: "Make | None" = None
    """Builds the model, if no import string does."""
    save_best: SaveBest = lambda theta, evaluation: None
    """Called with each model that is better than all before it."""
    callbacks: Callbacks = Callbacks()
    loss_reason: Callable[[], str] = str
    """Returns why the run is no longer this server's; empty while it is."""
    path: str = "/"
    """The path of the page, as browsers see it."""


def _describe(config: Config, rates: list[float]) -> str:
    """Return a text on the devices' optimizer, for the log. `rates` are the run's learning rates so far."""
    before = f", until now {rates[-2]:g}" if len(rates) > 1 and rates[-2] != rates[-1] else ""
    return (
        f"devices use {config.local.optimizer} (local.optimizer); coordination.learning_rate is "
        f"{rates[-1] if rates else config.coordination.learning_rate:g}{before}"
    )


@contextmanager
def open_run(
    config: Config,
    objects: ServerObjects = NO_OBJECTS,
    wait: Waiting | None = None,
    place: Place | None = None,
) -> Iterator[HostedRun]:
    """Begin the run that `config` describes, or resume it.

    While another server hosts it, `wait` is called repeatedly, as `Waiting` says; it raises to give up.
    Without `wait` this is an error. `place` stores the parameters; None: as config.scale says.

    The run belongs to this process while the context lasts. Afterwards it may be opened again, also after a
    failure. Raises ConfigError if the model, the data or the directory is unusable.
    """
    trackers.check(config.evaluation.trackers)
    callbacks = objects.callbacks.with_settings(config.callbacks)
    model = model_of(config, objects)
    if callbacks.stop is not None and model.setup.evaluate is None:
        raise ConfigError("callbacks.stop needs evaluations, and there are no data for them; set model.data")
    theta = model.theta
    directory = Path(config.server.directory)
    run = claim_run(
        directory,
        "server.directory",
        *(model.layout, theta, config, model.start, wait, place),
        model.description,
    )
    with run as claim:
        if claim.data != model.description and model.description is not None:
            log.info("%s is read in the columns and units that the run began with", config.model.data)
            model = model_of(config, objects, claim.data)
        first = claim.journal.snapshot(first=True).theta
        if config.model.weights and first.tobytes() != theta.tobytes():
            raise ConfigError(
                f"server.directory = {str(directory)!r} holds a run that began with other weights than "
                f"model.weights = {config.model.weights!r}; choose another one, or leave model.weights out"
            )
        if claim.engine.start is None:
            _offer(claim, directory, first)
        adapted = model.setup.adapted
        base = None if adapted is None else adapted.describe(save_base(directory, adapted.file))
        if (targets := model.setup.targets) is not None and (warning := targets.problem):
            log.warning("%s; %s", warning, REMEDY)
        log.info("%s", _describe(config, [turn.regime.learning_rate for turn in claim.journal.regimes()]))
        if model.trial is not None:
            log.info("%s on %s: %s", config.model.module, config.model.data or "own data", model.trial)
        tls, pin = server_context(config, directory, objects.proxy)
        authority = authority_of(config, directory, tls, objects.proxy)
        with closing(Register(directory)) as register:
            claim.journal.db.add_loss_callback(register.db.interrupt)
            register.store_address(register.url, pin)
            write_admin_token(register, directory)
            data = model.setup.data
            info = info_of(config.model, claim.run, model.layout, model.setup.input, claim.data, adapted)
            yield HostedRun(
                run=claim.run,
                register=register,
                audit=Audit(directory),
                engine=claim.engine,
                model=model.setup,
                history=claim.journal.evaluations(),
                accounts=claim.journal.accounts(),
                find_suspect=partial(largest_step, claim.journal, model.layout),
                base=base,
                tls=tls,
                pin=pin,
                description=claim.data,
                held_out=None if data is None else sketch_of(claim.run, data.x, data.y),
                authority=authority,
                make=objects.make,
                save_best=lambda theta, evaluation: save_best(
                    directory,
                    info,
                    model.setup.extras,
                    adapted,
                    theta,
                    evaluation,
                    claim.engine.eligibility.privacy_spent,
                ),
                callbacks=callbacks,
                loss_reason=claim.journal.db.loss_reason,
                path="/" if objects.proxy is None else objects.proxy.path,
            )


def _offer(claim: Claim, directory: Path, first: NDArray[np.float32]) -> None:
    """Let devices load `first`, the model at version 0, from a file."""
    try:
        claim.engine.outlet.offer(first, partial(save_first_model, directory))
    except OSError as error:
        raise ConfigError(
            f"server.directory = {str(directory)!r} cannot store the first model: {error}; free some disk "
            "space"
        ) from error
