"""A server for a test: an engine on a small layout, without a model, on 127.0.0.1, in the running loop."""

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.identity import ClientIdentity
from edgeflock.server.app import create_app, listen
from edgeflock.server.connections import ConnectionLimits
from edgeflock.server.connections.traffic import Traffic
from edgeflock.server.engine.engine import Engine
from edgeflock.server.gateway import ClientCertificate, Gateway, GatewayAddress
from edgeflock.server.hosting.model import ModelSetup
from edgeflock.server.hosting.run import HostedRun
from edgeflock.server.hosting.tls import authority_of
from edgeflock.server.http.keys import CONNECTION_LIMITS, GATEWAYS, HEALTH, HOST, WRITER
from edgeflock.server.identity import Audit, Register, Role, own_certificate, pin_of_file, server_tls
from edgeflock.server.identity.records import StoredToken
from edgeflock.server.journal.journal import Journal
from edgeflock.server.ledger.claim import claim_run
from edgeflock.server.ledger.offered import save_first_model
from edgeflock.server.monitoring.health import RunHealth
from edgeflock.server.roster.hub import Hub
from edgeflock.server.roster.rate_limiter import RateLimiters
from edgeflock.server.roster.registry import Registry
from edgeflock.server.roster.relay import Relay
from edgeflock.server.sessions import Gateways
from edgeflock.server.sessions.writer import Writer
from edgeflock.shared.identity import NO_PIN, digest_of, join_message, new_key, public_of, sign
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import Start, generate
from edgeflock.shared.settings.config import Config, parse

LAYOUT = Layout.from_shapes(
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

EXACTLY = ("coordination.average=0", "downlink.mode=exact")
"""Theta is what is served, and devices hold it to the last bit; unless a test's settings say otherwise."""


@dataclass(frozen=True, slots=True)
class Hosted:
    """A server that listens."""

    port: int
    config: Config
    engine: Engine
    journal: Journal
    writer: Writer
    registry: Registry
    hub: Hub
    traffic: Traffic
    relay: Relay
    register: Register
    health: RunHealth
    gateways: Gateways
    connection_limits: ConnectionLimits
    rate_limiters: RateLimiters

    @property
    def url(self) -> str:
        return f"{'https' if self.register.pin else 'http'}://127.0.0.1:{self.port}"

    def enrol(self, name: str) -> ClientIdentity:
        """A device that has joined."""
        token, key = self.register.create("device").text, new_key()
        words = join_message(token, self.register.pin or NO_PIN, public_of(key), name)
        joined = self.register.join(
            token, name, public_of(key), sign(key, words), self.register.pin, b"", 1000
        )
        return ClientIdentity(self.url, name, joined.credential, key, joined.realm, self.register.pin)


@asynccontextmanager
async def gateway(
    hosted: Hosted,
    name: str = "gateway",
    token: str | None = None,
    tls: Path | None = None,
    leaders: str = "",
    shown: ClientIdentity | None = None,
) -> AsyncIterator[tuple[Gateway, str]]:
    """(A gateway of `hosted`, its URL). `tls` is the directory of the run, whose key it shows; `shown` is
    what it joined with, if it has.
    """
    token = hosted.register.create("gateway", reusable=True).text if token is None else token
    place = GatewayAddress(port=0)
    if tls is not None:
        place = GatewayAddress(port=0, certificate=tls / "certificate.pem", key=tls / "certificate-key.pem")
    own = None if shown is None else ClientCertificate(shown.key, shown.certificate)
    one = Gateway(leaders or hosted.url, token, name, place, own)
    async with one.serving() as port:
        await one.serve_until(one.upstream.ready)
        yield one, f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"


def initial_theta(size: int) -> NDArray[np.float32]:
    """float32 [size]: the parameters at version 0."""
    return np.random.default_rng(7).standard_normal(size).astype(np.float32)


@asynccontextmanager
async def hosting(
    directory: Path,
    *settings: str,
    layout: Layout = LAYOUT,
    closed: bool = False,
    admin_token: str = "",
    viewer_token: str = "",
    run: str = RUN,
    start: Start | None = None,
    offered: bool = False,
    with_tls: bool = False,
    shown: Path | None = None,
    certificates: bool = False,
    port: int = 0,
) -> AsyncIterator[Hosted]:
    """Serve the run in `directory`, begun if there is none, with `settings` (section.key=value) set
    beside EXACTLY.

    With `offered` devices may load the model that it begins with: initial_theta, or as `start` says. If it is
    `closed`, only who has joined is let in (Hosted.enrol); an empty admin_token lets nobody act. `shown` is
    the certificate of a proxy in front. With `certificates` devices get
    some, as server.client_certificates says.
    """
    # Nothing is to happen by the clock while a test looks.
    admission = f"server.open={str(not closed).lower()}"
    place = [f"server.directory={directory}"] * offered
    config = parse(overrides=["evaluation.every=3600", "model.data=", admission, *place, *EXACTLY, *settings])
    directory.mkdir(exist_ok=True)
    _begin(directory, run, config.model.module, layout, start)
    with ExitStack() as opened:
        theta = initial_theta(layout.size)
        claim = opened.enter_context(claim_run(directory, "server.directory", layout, theta, config))
        history, accounts = claim.journal.evaluations(), claim.journal.accounts()
        register = opened.enter_context(closing(Register(directory)))
        tokens: dict[Role, str] = {"admin": admin_token, "viewer": viewer_token}
        for role, text in tokens.items():
            if text:
                store_token(register, text, role)
        tls, pin = server_tls(own_certificate(directory, "127.0.0.1")) if with_tls else (None, b"")
        pin = pin_of_file(shown) if shown else pin
        register.store_address("", pin)
        hosted = HostedRun(
            claim.run,
            register,
            Audit(directory),
            claim.engine,
            ModelSetup(input=tuple(config.model.input) or None),
            history,
            accounts,
            tls=tls,
            pin=pin,
            authority=authority_of(config, directory, tls) if certificates else None,
        )
        if offered:
            claim.engine.outlet.offer(
                claim.journal.snapshot(first=True).theta, partial(save_first_model, directory)
            )
        app = create_app(config, hosted)
        async with listen(app, "127.0.0.1", port, tls) as bound:
            view = app[HOST]
            yield Hosted(
                bound,
                config,
                claim.engine,
                claim.journal,
                app[WRITER],
                view.registry,
                view.hub,
                view.traffic,
                view.relay,
                register,
                app[HEALTH],
                app[GATEWAYS],
                app[CONNECTION_LIMITS],
                view.rate_limiters,
            )


def store_token(register: Register, text: str, role: Role) -> None:
    """Let the register know a token that the test has made up."""
    digest = digest_of(text)
    with register.transaction():
        register.put("tokens", digest, StoredToken(digest, role, True, register.clock(), None, {}, None))


def _begin(directory: Path, run: str, model: str, layout: Layout, start: Start | None) -> None:
    """A run that is called `run`, if there is none."""
    journal = Journal(directory / "journal.sqlite")
    if journal.run() is None:
        theta = initial_theta(layout.size) if start is None else generate(start, layout)
        journal.begin_run(run, model, layout, theta, 0.0, start)
    journal.close()
