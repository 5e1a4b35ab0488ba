"""Sources of samples by URI.

    npz:PATH[?part=I/N]              stored data (shared/data/datasets.py), whole, in one chunk
    digits:[?part=I/N]
    dir:PATH                         a folder in which files appear (folder.py)
    csv:PATH[?follow]                a file of readings, and what is written to its end (text.py)
    stdin:                           lines that are piped in, of JSON or CSV
    python:MODULE:NAME               a generator of one's own (generator.py)
    mqtt://host:port/topic           a broker's messages (mqtt.py, kafka.py); with an s behind it, over TLS
    kafka://host:port/topic
    http://host/path                 JSON, asked for again and again (polled.py); also https:
    synthetic:URI?rate=64            stored data at a rate (synthetic.py)

and what installed plug-ins add (shared/plugins.py).

A source is an async generator function (uri, tally) -> chunks, registered in SOURCES. It yields samples as
they arrive, waits for ever where more may come, counts in `tally` what it skips, and raises ConfigError for
what no waiting mends. What it yields then passes the same checks and options, whatever the source:

    shape=3,32,32     of one sample; without it, the first good sample settles it
    targets=classes   or numbers; without it, the first good sample settles it
    classes=10        targets are 0 .. 9
    window=K, lags=L  features of the recent past (shared/data/recent.py)

    live                      what is not trained on at once is dropped, or buffered; batches follow the rate
    backlog                   the source waits for training, which takes the run's batches (backlog.py)

Files are a backlog and the others live, if neither is said. Samples that do not fit, hold NaN or
infinity, or are far out of range are counted and set aside (checks.py).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from edgeflock.client.data.checks import Agreed, Checks, set_aside
from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.client.data.sources.folder import watched
from edgeflock.client.data.sources.generator import generated
from edgeflock.client.data.sources.kafka import from_kafka
from edgeflock.client.data.sources.mqtt import from_mqtt
from edgeflock.client.data.sources.polled import polled
from edgeflock.client.data.sources.synthetic import replayed
from edgeflock.client.data.sources.text import piped, read_and_followed
from edgeflock.client.data.uri import Uri
from edgeflock.shared.data import datasets
from edgeflock.shared.data.recent import LaggedFeatures
from edgeflock.shared.data.texts import with_codes
from edgeflock.shared.plugins import Table

Source = Callable[[Uri, Skipped], AsyncGenerator[StreamChunk, None]]


async def stored(uri: Uri, tally: Skipped) -> AsyncGenerator[StreamChunk, None]:
    """Everything at once: that is what stored data are."""
    data = datasets.load(str(uri), "train")
    yield StreamChunk(data.x, data.y)


_OURS: dict[str, Source] = {
    "npz": stored,
    "digits": stored,
    "dir": watched,
    "csv": read_and_followed,
    "stdin": piped,
    "python": generated,
    "mqtt": from_mqtt,
    "mqtts": from_mqtt,
    "kafka": from_kafka,
    "kafkas": from_kafka,
    "http": polled,
    "https": polled,
    "synthetic": replayed,
}

SOURCES: Table[Source] = Table("edgeflock.sources", _OURS)


FILES = ("dir", "csv")
"""Of these what is not yet trained on is there tomorrow."""


def waits(text: str) -> bool:
    """Whether the source that the URI `text` names is to be read only as fast as training goes."""
    uri = Uri.parse(text)
    if "live" in uri.options and "backlog" in uri.options:
        raise uri.wrong("is live or a backlog: leave one of them out")
    return "backlog" in uri.options or (uri.scheme in FILES and "live" not in uri.options)


def open_source(
    text: str,
    tally: Skipped | None = None,
    seed: Sequence[int] = (0,),
    most: float = 0.0,
    agreed: Agreed | None = None,
    function: Callable[..., Any] | None = None,
) -> AsyncGenerator[StreamChunk, None]:
    """The samples of the source that the URI `text` names, as they arrive.

    `seed` is for what a synthetic one draws, and should be the device's own; `most` and `agreed` are
    those of Checks. `function` is a generator function at hand, which `text` cannot name: python:. Raises
    ConfigError for a URI that is none, and later for what no waiting mends.
    """
    uri = Uri.parse(text)
    source = SOURCES.get(uri.scheme)
    if source is None:
        known = dict.fromkeys([*SOURCES, *datasets.READERS])
        raise uri.wrong(f"known are {', '.join(f'{name}:' for name in known)}{datasets.meant(text)}")
    if source is replayed:
        source = partial(replayed, seed=seed)
    if function is not None:
        source = partial(generated, function=function)
    common, rest = uri.split("shape", "targets", "classes", "window", "lags", "live", "backlog")
    window, lags = uri.whole("window"), uri.whole("lags")
    recent = LaggedFeatures(window, lags, uri.whole("classes")) if window or lags else None
    shape, targets = _shape(uri, common.get("shape")), common.get("targets")
    # What is agreed is the shape of what comes out of here.
    checks = Checks(shape, uri.whole("classes"), targets, most, None if recent else agreed)
    tally = tally or Skipped()
    return _checked(source(rest, tally), checks, recent, tally)


async def _checked(
    source: AsyncGenerator[StreamChunk, None], checks: Checks, recent: LaggedFeatures | None, tally: Skipped
) -> AsyncGenerator[StreamChunk, None]:
    async with aclosing(source):
        async for chunk in source:
            good = checks.admit(chunk, tally)
            if recent is not None and good.x.ndim == 2 and (texts := with_codes(good.x)).any():
                set_aside(good, texts, "not numbers", "window= and lags= are of numbers alone", tally)
                good = good.where(~texts)
            if len(good):
                featured = recent.extend(good) if recent else good
                yield StreamChunk(featured.x, featured.y, good.keys)
            else:  # a flood of broken samples holds up nobody
                await asyncio.sleep(0)


def _shape(uri: Uri, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    sizes = text.split(",") if text else []
    if not all(size.isascii() and size.isdecimal() for size in sizes):
        raise uri.wrong(f"shape={text} must be sizes such as 3,32,32")
    return tuple(int(size) for size in sizes)
