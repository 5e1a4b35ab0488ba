"""One device, from its settings to its last words."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from edgeflock.client.data.open import directory, shards_of
from edgeflock.client.health import DeviceHealth, memory_of
from edgeflock.client.identity import ClientIdentity, identity_of, keep
from edgeflock.client.machine import default_name
from edgeflock.client.neighbour import Pausing, Resting, give_way, rate_of, rules_of, share_of
from edgeflock.client.run.building import Building
from edgeflock.client.run.choosing import ZOO, choose, facts_of, flower_app
from edgeflock.client.run.holding import holding
from edgeflock.client.run.program_objects import NOTHING_AT_HAND, ClientObjects
from edgeflock.client.spool import Spool
from edgeflock.client.training import Worker, WorkerProgress
from edgeflock.client.training.attempts import FAILURES
from edgeflock.client.transport import Link
from edgeflock.shared.data.account import SampleAccount
from edgeflock.shared.errors import ConfigError, EdgeflockError, TrainingFailed
from edgeflock.shared.protocol.messages import PROTOCOL, Facts, Hello

if TYPE_CHECKING:  # its pydantic is a quarter of the client's import time
    from edgeflock.shared.settings.client import ClientSettings

log = logging.getLogger(__name__)

LAST_WORDS = 2.0
"""Seconds that a device which leaves takes to tell what became of its samples."""


def _quietly(account: SampleAccount) -> None:
    """Nobody wants to know."""


async def run_client(
    settings: "ClientSettings",
    at_end: Callable[[SampleAccount], None] = _quietly,
    given: ClientObjects = NOTHING_AT_HAND,
) -> WorkerProgress:
    """Train for `settings.server` until its run is over, or this is cancelled.

    `at_end` is told what became of every sample, if they were a stream. Raises ConfigError, Diverged,
    TrainingFailed or SessionRefused.
    """
    identity, place = given.identity, None
    if identity is None:
        identity, place = identity_of(settings)
        if identity is None and "server" not in settings.model_fields_set:
            log.warning(
                "this device has joined no server (there is no %s), so it looks for an open run at %s; to "
                "join one: edgeflock client join URL TOKEN, with what that server printed",
                *(place, settings.server),
            )
    settings = _known_as(settings, identity)
    share, bandwidth = share_of(settings.cpu), rate_of(settings.bandwidth)
    pausing = Pausing(rules_of(settings.pause_on), says_why=settings.health)
    named = shards_of(settings)
    app = flower_app(settings) if settings.flower_app else None
    memory = memory_of() // 2
    # Which model it is, only the Welcome says: most are of the zoo.
    facts = facts_of(choose(settings, ZOO, given))
    link = Link(
        settings.server,
        identity,
        Hello(PROTOCOL, settings.name, b"", facts, settings.share, shards=",".join(named)),
        Random(),
        memory=memory,
        samples=_samples() if settings.share else 0,
        bandwidth=bandwidth,
        insecure=settings.insecure or (identity is not None and identity.insecure),
        renewed=partial(_renewed, place=place),
    )
    # One thread for all computing: each has a heap of its own, and keeps what it once needed. It begins once
    # the device has joined, for which a busy machine leaves nothing to a process that gives way.
    gentle = give_way if given.gentle else None
    with ThreadPoolExecutor(1, initializer=gentle) as thread, closing(Resting(share)) as resting:

        async def compute(function: Callable[..., Any], *arguments: Any) -> Any:
            return await asyncio.get_running_loop().run_in_executor(thread, function, *arguments)

        async with holding(settings, given, named, app, link) as held, link:
            building = Building(settings, given, app, held, link, compute, resting, memory)
            measured: Callable[[], Facts] = DeviceHealth() if settings.health else dict

            def health() -> Facts:
                return {**measured(), **pausing.facts()}

            worker = Worker(
                *(link, building.trainer, held.batches, compute, health, building.first),
                choose=held.choose,
                permitted=pausing.permitted,
                spool=_spool(settings, given),
            )
            await pausing.look()
            progress = await _work(worker, link, pausing, at_end)
            held.tell()
            return progress


async def _work(
    worker: Worker, link: Link, pausing: Pausing, at_end: Callable[[SampleAccount], None]
) -> WorkerProgress:
    """All of it, and the last words."""
    beside = [
        asyncio.create_task(worker.keep_telling(link.tell)),
        asyncio.create_task(pausing.watch(partial(worker.tell_now, link.tell))),
    ]
    reason = "finished: its part is done"
    try:
        progress = await worker.run()
        _some_fit(SampleAccount.of(worker.facts()))
        return progress
    except BaseException as error:
        reason = _why(error)
        raise
    finally:
        for task in beside:
            task.cancel()
        await asyncio.wait(beside)
        account = SampleAccount.of(worker.facts())
        if account is not None:
            at_end(account)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                if account is not None:
                    await link.tell(worker.facts())
                await link.leave(reason)


def _some_fit(account: SampleAccount | None) -> None:
    """Raises ConfigError if there were samples, and none of them was one to train on."""
    if account is not None and 0 < account.came == account.quarantined:
        raise ConfigError(
            f"client.data: none of {account.came:,} samples could be trained on, the log says why; if it is "
            "a table, say which column is to be predicted: csv:PATH?label=COLUMN"
        )


def _why(error: BaseException) -> str:
    """What the server is told of a device that ends with `error`: nothing that its data might have said."""
    if isinstance(error, asyncio.CancelledError):
        return "retired: stopped by its owner"
    if isinstance(error, ConfigError):
        return "error: its settings or its data do not fit the run; its own log says why"
    if isinstance(error, TrainingFailed):
        cause = type(error.__cause__ or error).__name__
        return f"error: {FAILURES} steps in a row failed, the last one with {cause}; its own log says why"
    return f"error: {error if isinstance(error, EdgeflockError) else type(error).__name__}"


def _known_as(settings: "ClientSettings", identity: ClientIdentity | None) -> "ClientSettings":
    """The settings, with what this device joined with."""
    known = {"name": settings.name or default_name()}
    if identity is not None:
        known = {"name": identity.name, "server": identity.server}
        if identity.graph:
            known["graph_digest"] = identity.graph.hex()
    return settings.model_copy(update=known)


def _renewed(identity: ClientIdentity, place: Path | None) -> None:
    if place is not None:
        keep(identity, place)
        log.info("has another key and credential: %s", place)


def _samples() -> int:
    """Bytes of the longest record of others' samples."""
    from edgeflock.client.data.injection import LONGEST_RECORD

    return LONGEST_RECORD


def _spool(settings: "ClientSettings", given: ClientObjects) -> Spool | None:
    """None where an update that was lost would come again: the samples of a stream's buffer do. Or where the
    device's name is not for a second time.
    """
    if settings.buffer or given.identity is not None:
        return None
    return Spool(directory(settings), settings.server, settings.name)
