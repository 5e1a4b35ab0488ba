"""A server for a test: an engine on a small layout, without a model, on 127.0.0.1, in the running loop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.app import create_app, listening
from edgeflock.server.engine import Bounds, Engine
from edgeflock.server.hosting import HostedRun
from edgeflock.server.journal import Journal
from edgeflock.server.keys import SERVICES
from edgeflock.server.recovery import recover
from edgeflock.server.regime import Regime
from edgeflock.server.session import Services
from edgeflock.shared.config import parse
from edgeflock.shared.layout import Layout

LAYOUT = Layout.of(
    [
        ("conv.weight", (8, 5)),
        ("conv.bias", (8,)),
        ("nothing", (0,)),
        ("scale", ()),
        ("dense.weight", (10, 6)),
        ("dense.bias", (10,)),
    ]
)
"""119 parameters in tensors of all kinds: an empty one and a scalar among them."""

RUN = "5f3c0ad1e2b49687"


@dataclass(frozen=True, slots=True)
class Hosted:
    """A server that listens."""

    port: int
    engine: Engine
    journal: Journal
    services: Services


def initial_theta(size: int) -> NDArray[np.float32]:
    """float32 [size]: the parameters at version 0."""
    return np.random.default_rng(7).standard_normal(size).astype(np.float32)


@asynccontextmanager
async def hosting(
    directory: Path,
    *settings: str,
    layout: Layout = LAYOUT,
    token: str = "",
    admin_token: str = "",
    run: str = RUN,
) -> AsyncIterator[Hosted]:
    """Serve the run in `directory`, begun if there is none, with `settings` (section.key=value) set.

    An empty token lets everybody in, an empty admin_token nobody act.
    """
    # Nothing is to happen by the clock while a test looks.
    config = parse(overrides=["run.evaluate_every=3600", "model.data=", *settings])
    journal = Journal(directory / "journal.sqlite")
    known = journal.run()
    if known is None:
        journal.begin_run(run, config.model.module, layout, initial_theta(layout.size), 0.0)
    else:
        run = known.run
    limits, regime = config.limits, Regime.of(config.coordination)
    bounds = Bounds(
        config.run.updates,
        limits.expansion_bytes,
        config.run.snapshot_every,
        config.run.keep_updates,
        limits.samples,
    )
    engine = Engine(journal, layout, recover(journal, layout, regime), bounds, config.model.pull)
    history, accounts = journal.evaluations(), journal.accounts()
    hosted = HostedRun(run, token, engine, None, history, accounts, admin_token=admin_token)
    app = create_app(config, hosted)
    async with listening(app, "127.0.0.1", 0) as port:
        yield Hosted(port, engine, journal, app[SERVICES])
