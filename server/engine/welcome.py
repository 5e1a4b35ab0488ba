"""The Welcome that a device gets when it joins."""

import numpy as np

from edgeflock.server.descent import Regime
from edgeflock.server.engine.limits import frame_bytes, select_interval, usual_fraction
from edgeflock.server.privacy import noise_of
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.held_out import Sketch
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.lora import Base
from edgeflock.shared.model.personal import Personal
from edgeflock.shared.model.start import Start
from edgeflock.shared.protocol.messages import PROTOCOL, SumTerms, Welcome
from edgeflock.shared.settings.config import ADAFACTOR, Config

_SQUARES_DECAY = 0.99
"""Adafactor's decay per step of its mean of squared gradients."""


def welcome(
    run: str,
    config: Config,
    layout: Layout,
    start: Start | None = None,
    shape: tuple[int, ...] | None = None,
    description: Description | None = None,
    app: bytes = b"",
    held_out: Sketch | None = None,
    personal: Personal | None = None,
    base: Base | None = None,
) -> Welcome:
    """Return the Welcome for a new device at version 0.

    `shape` is the shape of a sample's x, if known; `description` is the rest of the data's description. `app`
    is for the devices' own apps. `held_out` is a sketch of the held-out rows. `personal` describes the layers
    that devices train for themselves, `base` those that are frozen. `layout` lacks both.
    """
    compression = config.compression
    significance = None
    coordination = config.coordination
    if (
        compression.selection == "significance"
    ):  # the setting bounds |rate * gradient / parameter|, devices compare gradients
        significance = compression.significance / Regime.from_config(config).learning_rate
    elastic, local = coordination.traits.elastic, config.privacy.mode == "local"
    clips = local or (coordination.traits.private and config.privacy.mode == "server")
    return Welcome(
        protocol=PROTOCOL,
        run=run,
        model=config.model.module,
        loss=config.model.loss,
        layout=list(layout.shapes()),
        start=start,
        version=0,
        sequence=0,
        batch=config.local.batch,
        local_steps=config.local.steps,
        local_rate=config.local.rate,
        select=usual_fraction(config, layout),
        balance=config.compression.balance,
        threshold=config.compression.threshold,
        feedback=config.compression.feedback,
        indices=sparse.CODINGS[config.compression.indices].mode,
        values=values.CODINGS[config.compression.values].mode,
        frame_bytes=frame_bytes(config, layout),
        alpha=config.injection.alpha,
        beta=config.injection.beta,
        significance=significance,
        decays=significance is not None and compression.significance_decay,
        elastic=coordination.moving_rate if elastic else 0.0,
        chunk=coordination.chunk if elastic else 0,
        momentum=config.local.momentum,
        tasks=coordination.traits.tasks,
        input=shape,
        adam=config.local.optimizer == "adam",
        proximal=config.local.proximal,
        app=app,
        data=description,
        held_out=held_out,
        adafactor=_SQUARES_DECAY if config.local.optimizer == ADAFACTOR else 0.0,
        balances=_balances(config) and personal is None and base is None,
        select_interval=select_interval(config),
        evaluate=config.evaluation.on_devices,
        personal=personal,
        base=base,
        private=config.privacy.mode != "none" or coordination.traits.private,
        clip=config.privacy.clip if clips else 0.0,
        noise=noise_of(config) if clips else 0.0,
        examples=config.privacy.examples if local else 0,
        sums=sum_terms(config),
    )


def sum_terms(config: Config) -> SumTerms | None:
    """Return the terms of secure sums, as they travel; None: the run has none."""
    coordination = config.coordination
    if not coordination.traits.private:
        return None
    return SumTerms(float(np.float32(coordination.threshold)), coordination.bits, coordination.quorum)


def _balances(config: Config) -> bool:
    local = config.local
    return local.balance_labels and local.optimizer == ADAFACTOR and not config.coordination.traits.elastic
