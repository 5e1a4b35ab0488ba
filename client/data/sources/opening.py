"""Opens sources of samples by URI. Stored data are none of them (shared/data/datasets.py).

    dir:PATH                         a folder in which files appear (files.py)
    csv:PATH[?follow]                a file of readings; with follow also appended lines (files.py)
    stdin:                           piped lines of JSON or CSV
    python:MODULE:NAME               a user's generator (generator.py)
    mqtt://host:port/topic           a broker's messages (mqtt.py, kafka.py); mqtts:, kafkas: over TLS
    kafka://host:port/topic
    http://host/path                 JSON, polled (polled.py); also https:
    synthetic:URI?rate=64            stored data, replayed at a rate (synthetic.py)

Installed plug-ins add others (shared/plugins.py).

A source is an async generator function (uri, tally) -> chunks, registered in SOURCES. It yields samples as
they arrive, waits as long as more may come, counts skipped records in `tally`, and raises ConfigError for
permanent faults. The samples of all sources pass the same checks and options:

    shape=3,32,32     of one sample; by default the first good sample's
    targets=classes   or numbers; by default the first good sample's
    classes=10        targets are 0 .. 9
    window=K, lags=L  features of the recent past (shared/data/recent.py)

    live                      excess samples are dropped or buffered; batches follow the rate
    backlog                   the source waits for training, in the run's batches (backlog.py)

By default files are a backlog and the others are live. Samples that do not fit, hold NaN or infinity, or are
far out of range are counted and set aside (checks.py).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from difflib import get_close_matches
from functools import partial
from typing import Any

from edgeflock.client.data.checks import Checks, SampleSchema, set_aside
from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.client.data.sources.files import read_csv, read_folder, read_stdin
from edgeflock.client.data.sources.generator import run_generator
from edgeflock.client.data.sources.kafka import from_kafka
from edgeflock.client.data.sources.mqtt import from_mqtt
from edgeflock.client.data.sources.polled import poll_http
from edgeflock.client.data.sources.synthetic import replay_stored
from edgeflock.client.data.uri import Uri
from edgeflock.shared.data import datasets
from edgeflock.shared.data.recent import LaggedFeatures
from edgeflock.shared.data.texts import has_codes
from edgeflock.shared.plugins import Table

Source = Callable[[Uri, Skipped], AsyncGenerator[StreamChunk, None]]


_BUILT_IN: dict[str, Source] = {
    "dir": read_folder,
    "csv": read_csv,
    "stdin": read_stdin,
    "python": run_generator,
    "mqtt": from_mqtt,
    "mqtts": from_mqtt,
    "kafka": from_kafka,
    "kafkas": from_kafka,
    "http": poll_http,
    "https": poll_http,
    "synthetic": replay_stored,
}

SOURCES: Table[Source] = Table("edgeflock.sources", _BUILT_IN)


FILES = ("dir", "csv")
"""Schemes whose samples stay available until training reads them."""


def is_backlog(text: str) -> bool:
    """Return whether the source of the URI `text` waits for training (a backlog)."""
    uri = Uri.parse(text)
    if "live" in uri.options and "backlog" in uri.options:
        raise uri.error("is live or a backlog: leave one of them out")
    return "backlog" in uri.options or (uri.scheme in FILES and "live" not in uri.options)


def open_source(
    text: str,
    tally: Skipped | None = None,
    seed: Sequence[int] = (0,),
    limit: float = 0.0,
    schema: SampleSchema | None = None,
    function: Callable[..., Any] | None = None,
) -> AsyncGenerator[StreamChunk, None]:
    """Yield the samples of the source that the URI `text` names, as they arrive.

    `seed` seeds a synthetic source and should be the device's own. `limit` and `schema` are for
    Checks. `function` is a generator function that replaces the one `text` names. Raises ConfigError for an
    invalid URI, and later for permanent faults.
    """
    uri = Uri.parse(text)
    source = SOURCES.get(uri.scheme)
    if source is None:
        known = dict.fromkeys([*datasets.READERS, *SOURCES])
        near = "".join(f"; did you mean {name}:?" for name in get_close_matches(uri.scheme.lower(), known, 1))
        raise uri.error(
            f"known are {', '.join(f'{name}:' for name in known)}{datasets.suggestion(text)}{near}"
        )
    if source is replay_stored:
        source = partial(replay_stored, seed=seed)
    if function is not None:
        source = partial(run_generator, function=function)
    common, rest = uri.split("shape", "targets", "classes", "window", "lags", "live", "backlog")
    window, lags = uri.integer("window"), uri.integer("lags")
    recent = LaggedFeatures(window, lags, uri.integer("classes")) if window or lags else None
    shape, targets = _shape(uri, common.get("shape")), common.get("targets")
    # The agreed shape is that of the features after `recent`.
    checks = Checks(shape, uri.integer("classes"), targets, limit, None if recent else schema)
    tally = tally or Skipped()
    return _check_chunks(source(rest, tally), checks, recent, tally)


async def _check_chunks(
    source: AsyncGenerator[StreamChunk, None], checks: Checks, recent: LaggedFeatures | None, tally: Skipped
) -> AsyncGenerator[StreamChunk, None]:
    async with aclosing(source):
        async for chunk in source:
            good = checks.admit(chunk, tally)
            if recent is not None and good.x.ndim == 2 and (texts := has_codes(good.x)).any():
                set_aside(good, texts, "not numbers", "window= and lags= are of numbers alone", tally)
                good = good.select(~texts)
            if len(good):
                featured = recent.extend(good) if recent else good
                yield StreamChunk(featured.x, featured.y, good.keys)
            else:  # many broken samples must not block the event loop
                await asyncio.sleep(0)


def _shape(uri: Uri, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    sizes = text.split(",") if text else []
    if not all(size.isascii() and size.isdecimal() for size in sizes):
        raise uri.error(f"shape={text} must be sizes such as 3,32,32")
    return tuple(int(size) for size in sizes)
