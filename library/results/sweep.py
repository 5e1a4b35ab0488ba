"""Many runs of fleets on the cores of this machine, each kept in a folder, so that none is repeated.

    DIRECTORY/settings.json    what was run
    DIRECTORY/seed-0.jsonl     an evaluation a line, then how the run ended

A repeated sweep skips the runs that have ended.
"""

import fcntl
import json
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from edgeflock.devices.emulation.config import FleetFile
from edgeflock.results.outcomes import Outcome
from edgeflock.shared.errors import ConfigError, EdgeflockError
from edgeflock.shared.protocol.frames import Evaluation


@dataclass(frozen=True, slots=True)
class Job:
    """One run: a fleet, a seed, and its folder. Other kinds of runs override settings and play."""

    title: str
    file: FleetFile
    seed: int
    directory: Path
    target_accuracy: float = math.inf
    """The run ends after an evaluation with this accuracy."""

    @property
    def path(self) -> Path:
        return self.directory / f"seed-{self.seed}.jsonl"

    def settings(self) -> dict[str, Any]:
        """The settings that the runs of one directory share."""
        return self.file.model_dump(exclude={"client": True, "fleet": {"seeds"}})

    def play(self, progress: Callable[[Evaluation], None]) -> dict[str, Any]:
        """Run the job. Return how it ended: `ended`, `seed`, and more."""
        from edgeflock.devices.emulation.fleet import prepare, run_fleet
        from edgeflock.server.monitoring.listeners import Callbacks

        prepared = prepare(self.file)
        callbacks = Callbacks(on_evaluated=progress)
        return asdict(run_fleet(prepared, self.seed, callbacks, stop=self.has_reached_target))

    def has_reached_target(self, evaluation: Evaluation) -> bool:
        return (evaluation.accuracy or 0.0) >= self.target_accuracy


def sweep(jobs: Sequence[Job], workers: int | None = None) -> list[Outcome]:
    """Run the jobs that have not ended, `workers` at a time (default: one a core), with progress on stderr.

    Raises ConfigError if a directory holds runs with other settings, and whatever a run raises.
    """
    with ExitStack() as claims:
        for job in {job.directory: job for job in jobs}.values():
            claims.enter_context(_claim(job))
        waiting = [job for job in jobs if outcome(job) is None]
        if waiting:
            _run_all(waiting, workers or os.cpu_count() or 1)
    return [ended for job in jobs if (ended := outcome(job)) is not None]


def outcome(job: Job) -> Outcome | None:
    """Return a job's result, or None if it has not ended."""
    if not job.path.exists():
        return None
    try:
        lines = [json.loads(line) for line in job.path.read_text().splitlines()]
    except ValueError:
        return None  # the file ends in the middle of a line
    return Outcome(lines[:-1], lines[-1]) if lines and "ended" in lines[-1] else None


@contextmanager
def _claim(job: Job) -> Iterator[None]:
    """Lock the job's directory and write its settings. Refuse a directory of runs with other settings."""
    path = job.directory / "settings.json"
    settings = json.dumps(job.settings(), indent=1, sort_keys=True)
    try:
        job.directory.mkdir(parents=True, exist_ok=True)
        has_runs = any(one.stat().st_size for one in job.directory.glob("seed-*"))
        if has_runs and path.exists():
            different = _difference(json.loads(path.read_text()), json.loads(settings), job.file)
            if different:
                raise ConfigError(
                    f"{job.directory} holds runs with other settings ({different}); remove it or choose "
                    "another with --out"
                )
        lock = open(job.directory / "lock", "w")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.write_text(settings)
    except ValueError as error:
        raise ConfigError(f"{path} is damaged ({error}); remove {job.directory}") from error
    except BlockingIOError:
        raise ConfigError(f"{job.directory} is in use by another process") from None
    except OSError as error:
        raise ConfigError(f"--out {str(job.directory)!r} cannot hold runs: {error}") from error
    with lock:
        yield


def _difference(stored: Any, now: Any, setting: object, name: str = "") -> str:
    """Return the name of a setting whose value is not the stored one, or "".

    A setting that only `stored` has is no difference. One that `stored` lacks is, unless it has its default.
    """
    if isinstance(setting, BaseModel) and isinstance(stored, dict):
        fields = type(setting).model_fields
        for key, value in now.items():
            if key not in stored and key in fields:
                if getattr(setting, key) == fields[key].get_default(call_default_factory=True):
                    continue
                return f"{name}{key}"
            if found := _difference(stored.get(key), value, getattr(setting, key, None), f"{name}{key}."):
                return found
        return ""
    if isinstance(setting, dict) and isinstance(stored, dict) and stored.keys() == now.keys():
        several = (_difference(stored[key], now[key], setting[key], f"{name}{key}.") for key in now)
        return next(filter(None, several), "")
    return "" if stored == now else name.rstrip(".") or "all"


def _run_all(jobs: list[Job], workers: int) -> None:
    # Spawned: a forked child would inherit torch's and numba's threads in an unknown state.
    context = multiprocessing.get_context("spawn")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    pool = ProcessPoolExecutor(min(workers, len(jobs)), context, _start_worker)
    try:
        with Progress(*columns, TextColumn("{task.fields[accuracy]}"), console=Console(stderr=True)) as bars:
            running = {}
            for job in jobs:
                bar = bars.add_task(
                    f"{job.title} seed {job.seed}",
                    total=job.file.end.updates or None,
                    accuracy="",
                    start=False,
                    visible=False,
                )
                running[pool.submit(run, job)] = (job, bar)
            _watch(running, bars)
    except BrokenProcessPool as broken:
        raise EdgeflockError("a run's process was killed; is the memory enough for one a core?") from broken
    except BaseException:
        for process in list(pool._processes.values()):
            process.kill()  # a run's journal is intact at any moment
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    """Set up a worker: it ignores interrupts and ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has one"

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _watch(running: dict[Future[None], tuple[Job, Any]], bars: Progress) -> None:
    """Follow the runs' files until all have ended. Raises the exception of a run."""
    while running:
        time.sleep(0.2)
        for future, (job, bar) in list(running.items()):
            _show(job, bar, bars)
            if future.done():
                del running[future]
                future.result()
                bars.update(bar, visible=False)


def _show(job: Job, bar: Any, bars: Progress) -> None:
    if not job.path.exists():
        return
    rows = [line for line in job.path.read_bytes()[-4096:].splitlines() if line.startswith(b'{"updates"')]
    if rows:
        try:
            row = json.loads(rows[-1])
        except ValueError:
            return  # the file is incomplete
        if not bars.tasks[bar].started:
            bars.start_task(bar)
            bars.update(bar, visible=True)
        accuracy = "" if row["accuracy"] is None else f"{row['accuracy']:.2%}"
        bars.update(bar, completed=row["updates"], accuracy=accuracy)


def run(job: Job) -> None:
    """Run one job in its own process."""
    with open(job.path, "w", buffering=1) as file:

        def write(evaluation: Evaluation) -> None:
            known = evaluation._asdict()
            del known["classes"]  # of each of many evaluations
            if not evaluation.metrics:
                del known["metrics"]
            row = {"updates": known.pop("version"), "seconds": known.pop("time"), **known}
            print(json.dumps(row), file=file)

        print(json.dumps(job.play(write)), file=file)
