"""Runs one device, from its settings to its last message."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from edgeflock.client.data.open import directory, parse_shards
from edgeflock.client.identity import ClientIdentity, identity_of, save_identity, vouched_in
from edgeflock.client.machine import DeviceHealth, default_name, memory_of
from edgeflock.client.neighbour import Pausing, Resting, lower_priority, rate_of, rules_of, share_of
from edgeflock.client.run.building import Building, open_data
from edgeflock.client.run.choosing import NO_OBJECTS, ZOO, ClientObjects, choose, facts_of, flower_app
from edgeflock.client.run.model_keeper import ModelKeeper
from edgeflock.client.run.personal_file import PersonalFile
from edgeflock.client.run.several import choose_by_labels, settings_by_run
from edgeflock.client.training import Worker, WorkerProgress
from edgeflock.client.training.attempts import MAX_FAILURES
from edgeflock.client.training.spool import Spool
from edgeflock.client.training.sums import SumPolicy
from edgeflock.client.transport import Link
from edgeflock.shared.data.account import SampleAccount
from edgeflock.shared.errors import ConfigError, EdgeflockError, SeveralRuns, TrainingFailed
from edgeflock.shared.protocol.messages import PROTOCOL, Facts, Hello

if TYPE_CHECKING:  # its pydantic is a quarter of the client's import time
    from edgeflock.shared.settings.client import ClientSettings

log = logging.getLogger(__name__)

LAST_MODEL_SECONDS = 60.0
"""Longest time in seconds to fetch the model that a run ends with, for client.keep_model."""

CLOSING_SECONDS = 2.0
"""Longest time in seconds for the last messages of a device that leaves."""


async def run_client(
    settings: "ClientSettings",
    on_end: Callable[[SampleAccount], None] = lambda account: None,
    objects: ClientObjects = NO_OBJECTS,
) -> WorkerProgress:
    """Train for the run at `settings.server` until it is over, or for several, or until this is cancelled.

    For a stream, `on_end` gets the account of every sample. Raises ConfigError, Diverged, TrainingFailed or
    SessionRefused.
    """
    by_run = {"": settings} if objects.identity is not None else settings_by_run(settings)
    if len(by_run) > 1:
        return await _train_for_all(by_run, on_end, objects)
    (only,) = by_run.values()
    try:
        return await _train(only, on_end, objects)
    except SeveralRuns:
        return await _train(await choose_by_labels(only), on_end, objects)


async def _train_for_all(
    by_run: "dict[str, ClientSettings]", on_end: Callable[[SampleAccount], None], objects: ClientObjects
) -> WorkerProgress:
    """Train for several runs at a time. One that fails leaves the others alone, and is raised at the end."""
    tasks = []
    try:
        for name, settings in by_run.items():
            tasks.append(asyncio.create_task(_train(settings, on_end, objects)))
            tasks[-1].add_done_callback(partial(_log_end, name))
        await asyncio.wait(tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    done = [task.result() for task in tasks]
    counts = "updates", "samples", "refused", "duplicates", "stopped", "failed"
    return WorkerProgress(**{name: sum(getattr(one, name) for one in done) for name in counts})


def _log_end(name: str, task: "asyncio.Task[WorkerProgress]") -> None:
    if task.cancelled():
        return
    if (error := task.exception()) is not None:
        log.error("run %s: %s", name, error)
    else:
        log.info("run %s: its part is done", name)


async def _train(
    settings: "ClientSettings", on_end: Callable[[SampleAccount], None], objects: ClientObjects
) -> WorkerProgress:
    """Train for the one run at `settings.server`."""
    identity, place = objects.identity, None
    if identity is None:
        identity, place = identity_of(settings)
        if identity is None and "server" not in settings.model_fields_set:
            log.warning(
                "this device has joined no server (there is no %s), so it looks for an open run at %s; to "
                "join one: edgeflock client join URL TOKEN, with what that server printed",
                *(place, settings.server),
            )
    settings = _with_identity(settings, identity)
    share, bandwidth = share_of(settings.cpu), rate_of(settings.bandwidth)
    pausing = Pausing(rules_of(settings.pause_on), shows_reason=settings.health)
    named = parse_shards(settings)
    app = flower_app(settings) if settings.flower_app else None
    memory = memory_of() // 2
    # Only the Welcome names the model; assume one of the zoo.
    facts = facts_of(choose(settings, ZOO, objects), settings.labels)
    link = Link(
        settings.server,
        identity,
        Hello(PROTOCOL, settings.name, b"", facts, settings.share, shards=",".join(named)),
        Random(),
        memory=memory,
        samples=_longest_samples() if settings.share else 0,
        bandwidth=bandwidth,
        insecure=settings.insecure or (identity is not None and identity.insecure),
        on_renewed=partial(_save_renewed, place=place),
    )
    # One thread for all computing, since each thread keeps its own heap. It starts after joining: at low
    # priority a busy machine would leave no time to join.
    initializer = lower_priority if objects.gentle else None
    with ThreadPoolExecutor(1, initializer=initializer) as thread, closing(Resting(share)) as resting:

        async def compute(function: Callable[..., Any], *arguments: Any) -> Any:
            return await asyncio.get_running_loop().run_in_executor(thread, function, *arguments)

        async with open_data(settings, objects, named, app, link) as data, link:
            personal = PersonalFile(directory(settings), settings.server, settings.name)
            building = Building(settings, objects, app, data, link, compute, resting, memory, personal)
            measured: Callable[[], Facts] = DeviceHealth() if settings.health else dict

            def health() -> Facts:
                return {**measured(), **pausing.facts()}

            worker = Worker(
                *(link, building.trainer, data.batches, compute, health, building.first_model),
                choose=data.choose,
                wait_permission=pausing.wait_permission,
                spool=_spool(settings, objects),
                sum_policy=_sum_policy(settings, identity),
            )
            await pausing.check()
            keeper = _keeper(settings, link, personal)
            try:
                progress = await _work(worker, link, pausing, on_end, keeper)
            finally:
                personal.save()
                data.log_summary()
            return progress


async def _work(
    worker: Worker,
    link: Link,
    pausing: Pausing,
    on_end: Callable[[SampleAccount], None],
    keeper: ModelKeeper | None,
) -> WorkerProgress:
    """Run the worker, then send the last messages."""
    reports = [
        *(() if keeper is None else (asyncio.create_task(keeper.run()),)),
        asyncio.create_task(worker.report_facts(link.send_facts)),
        asyncio.create_task(pausing.watch(partial(worker.report_now, link.send_facts))),
    ]
    reason = "finished: its part is done"
    try:
        progress = await worker.run()
        _check_any_fit(SampleAccount.from_facts(worker.facts()))
        if keeper is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_MODEL_SECONDS):
                    await keeper.fetch()
        return progress
    except BaseException as error:
        reason = _end_reason(error)
        raise
    finally:
        for task in reports:
            task.cancel()
        await asyncio.wait(reports)
        account = SampleAccount.from_facts(worker.facts())
        if account is not None:
            on_end(account)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                if account is not None:
                    await link.send_facts(worker.facts())
                await link.leave(reason)


def _check_any_fit(account: SampleAccount | None) -> None:
    """Raises ConfigError if there were samples and all of them were set aside."""
    if account is not None and 0 < account.came == account.quarantined:
        raise ConfigError(
            f"client.data: none of {account.came:,} samples could be trained on, the log has the reasons; of "
            "a table, name the column to predict: csv:PATH?label=COLUMN"
        )


def _end_reason(error: BaseException) -> str:
    """Return the reason for the server when a device ends with `error`, without details of its data."""
    if isinstance(error, asyncio.CancelledError):
        return "retired: stopped by its owner"
    if isinstance(error, ConfigError):
        return "error: its settings or its data do not fit the run; its log has the reason"
    if isinstance(error, TrainingFailed):
        cause = type(error.__cause__ or error).__name__
        times = f"{MAX_FAILURES} steps in a row failed"
        return f"error: {times}, the last one with {cause}; its log has the reason"
    return f"error: {error if isinstance(error, EdgeflockError) else type(error).__name__}"


def _with_identity(settings: "ClientSettings", identity: ClientIdentity | None) -> "ClientSettings":
    """Return the settings with the name, server and graph digest of the identity."""
    changes = {"name": settings.name or default_name()}
    if identity is not None:
        changes = {"name": identity.name, "server": identity.server}
        if identity.graph:
            changes["graph_digest"] = identity.graph.hex()
    return settings.model_copy(update=changes)


def _save_renewed(identity: ClientIdentity, place: Path | None) -> None:
    if place is not None:
        save_identity(identity, place)
        log.info("the server replaced this device's key and credential: %s", place)


def _longest_samples() -> int:
    """Bytes of the longest record of others' samples."""
    from edgeflock.client.data.injection import LONGEST_RECORD

    return LONGEST_RECORD


def _keeper(settings: "ClientSettings", link: Link, personal: PersonalFile) -> ModelKeeper | None:
    """Return what keeps the model for this machine's programs, if its owner wants it. Raises ConfigError."""
    if not settings.keep_model:
        return None
    path, seconds = Path(settings.keep_model), settings.keep_model_seconds
    return ModelKeeper(path, seconds, link.downloads.model, personal.merge)


def _sum_policy(settings: "ClientSettings", identity: ClientIdentity | None) -> SumPolicy:
    """Return the owner's terms of secure sums. Raises ConfigError."""
    key = b"" if identity is None else identity.key
    vouched = vouched_in(settings.vouched)
    return SumPolicy(key, settings.sum_devices, vouched, settings.sum_threshold, settings.sum_noise)


def _spool(settings: "ClientSettings", objects: ClientObjects) -> Spool | None:
    """Return a spool, or None if it is not needed or not possible.

    A stream's buffer repeats the samples of a lost update. A given identity is not kept for a second start.
    """
    if settings.buffer or objects.identity is not None:
        return None
    return Spool(directory(settings), settings.server, settings.name)
