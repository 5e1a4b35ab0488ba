"""An emulated fleet in this program: N devices and the engine, in virtual time."""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import torch

from edgeflock.api.data import Data, dataset
from edgeflock.api.keywords import sections_of
from edgeflock.api.model import Model, model_of
from edgeflock.api.named import Metrics, check_callback, split_metrics
from edgeflock.api.result import Evaluated
from edgeflock.devices.emulation import config
from edgeflock.devices.emulation.config import FleetFile
from edgeflock.devices.emulation.fleet import FleetObjects, FleetResult, prepare, run_fleet
from edgeflock.results.outcomes import Outcome
from edgeflock.results.sweep import Job, sweep
from edgeflock.server.monitoring.listeners import Applied, Callbacks
from edgeflock.shared.data import datasets
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.frames import Evaluation, Finding

if TYPE_CHECKING:
    from torch import nn

_FIFTH = 5

_IN_MEMORY = "(x, y)"
"""The name of data that the program passes as arrays."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FleetRun(Evaluated):
    """One run of a fleet. The times of its evaluations are virtual seconds."""

    outcome: FleetResult


class Fleet:
    """An emulated fleet in virtual time: docs/fleet.md."""

    def __init__(
        self,
        model: "Model | str | Callable[[], nn.Module] | nn.Module",
        *,
        data: Data | str,
        devices: int = 20,
        profile: str = "laptop",
        classes: Mapping[str, Mapping[str, object]] | None = None,
        evaluate: Data | str | None = None,
        metrics: Metrics = (),
        **settings: object,
    ) -> None:
        """`data` is (x, y) or a data URI, dealt evenly among the devices.

        There are `devices` of a shipped `profile`, or of several `classes`: names with settings of
        [devices.NAME]. Without `evaluate`, a fifth of (x, y) is held out. `metrics` are like a Server's.

        Other settings are those of a fleet file: of [fleet] by name, and the others as those of a Server.
        Raises ConfigError.
        """
        model = model_of(model)
        train, test, uris = _data(data, evaluate)
        names, own_metrics = split_metrics(metrics, "Fleet(metrics")
        own = {name: value for name, value in settings.items() if name in config.FleetSettings.model_fields}
        others = {name: value for name, value in settings.items() if name not in own}
        if "seeds" in own:
            raise ConfigError("edgeflock.Fleet(seeds=...): say run(seed) for each")
        usual = {"model": {**model.settings, "input": [], "data": uris[1], "metrics": names}}
        tables = {
            **sections_of(others, FleetFile.model_fields, usual, ("model", "client", "fleet"), Fleet),
            "fleet": {"devices": devices, "data": uris[0], **own},
            "devices": {profile: {"profile": profile}} if classes is None else classes,
        }
        file = config.parse("", "edgeflock.Fleet", settings=tables)
        self._initialise(file, FleetObjects(train, test, model.make, own_metrics))

    @classmethod
    def configured(cls, file: FleetFile) -> Self:
        """Return a fleet with the settings of a file. Raises ConfigError if they cannot work."""
        fleet = cls.__new__(cls)
        fleet._initialise(file, FleetObjects())
        return fleet

    def _initialise(self, file: FleetFile, objects: FleetObjects) -> None:
        self.file = file
        arrays = objects.train is not None or objects.test is not None
        self._has_objects = arrays or objects.make is not None or bool(objects.metrics)
        """Whether the fleet has objects that another process cannot find."""
        with _restored_torch_state():
            self._prepared = prepare(file, objects)

    def run(
        self,
        seed: int = 0,
        *,
        stop: Callable[[Evaluation], object] | None = None,
        on_update: Callable[[Applied], object] | None = None,
        on_evaluated: Callable[[Evaluation], object] | None = None,
        on_finding: Callable[[Finding], object] | None = None,
    ) -> FleetRun:
        """Run the fleet once.

        The same seed gives the same result, bit for bit. The run ends after an evaluation for which `stop`
        returns true. `on_update`, `on_evaluated` and `on_finding` are called as by a Server, and an exception
        that they raise ends the run.

        The call returns when the run is over, also in a notebook, whose event loop waits for it.
        """
        evaluations: list[Evaluation] = []
        callback = check_callback(on_evaluated, "Fleet.run(on_evaluated")
        stops = check_callback(stop, "Fleet.run(stop") or (lambda evaluation: False)

        def evaluated(evaluation: Evaluation) -> None:
            evaluations.append(evaluation)
            if callback is not None:
                callback(evaluation)

        listening = Callbacks(
            check_callback(on_update, "Fleet.run(on_update"),
            evaluated,
            on_finding=check_callback(on_finding, "Fleet.run(on_finding"),
        )

        def run_once() -> FleetRun:
            with _restored_torch_state():
                outcome = run_fleet(self._prepared, seed, listening, stops)
            return FleetRun(outcome=outcome, evaluations=tuple(evaluations))

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return run_once()
        with ThreadPoolExecutor(1, thread_name_prefix="edgeflock-fleet") as thread:  # a loop runs in this one
            return thread.submit(run_once).result()

    def sweep(
        self, directory: str | Path, seeds: Sequence[int] = (), *, workers: int | None = None
    ) -> list[Outcome]:
        """Run each of `seeds` (default: the file's), `workers` at a time (default: one for each core).

        Each run has its own process and stays in `directory`. A run that has ended is read, not repeated.

        Raises ConfigError if the model or its data are this program's objects, which other processes cannot
        find, or if the directory holds runs with other settings.
        """
        if self._has_objects:
            raise ConfigError(
                "Fleet.sweep: its model, data or metrics are objects of this program, and each run has a "
                'process of its own; name them, "package.module:Name" and a data URI, or run(seed) each'
            )
        folder = Path(directory)
        jobs = [Job(folder.name, self.file, seed, folder) for seed in seeds or self.file.fleet.seeds]
        return sweep(jobs, workers)


@contextmanager
def _restored_torch_state() -> Iterator[None]:
    """Restore torch's number of threads and random state, which belong to the program."""
    threads = torch.get_num_threads()
    try:
        with torch.random.fork_rng(devices=()):
            yield
    finally:
        torch.set_num_threads(threads)


def _data(
    data: Data | str, evaluate: Data | str | None
) -> tuple[Dataset | None, Dataset | None, tuple[str, str]]:
    """Return (training arrays, held-out arrays, the settings' names of both)."""
    uri = os.fspath(data) if isinstance(data, str | os.PathLike) else ""
    train = None if isinstance(data, str | os.PathLike) else dataset(data, "edgeflock.Fleet(data=...)")
    if isinstance(evaluate, str | os.PathLike):
        return train, None, (uri or _IN_MEMORY, os.fspath(evaluate))
    if evaluate is not None:
        test = dataset(evaluate, "edgeflock.Fleet(evaluate=...)")
        return train, test, (uri or _IN_MEMORY, _IN_MEMORY)
    if train is None:
        return None, None, (uri, uri)
    if len(train) < _FIFTH:
        raise ConfigError(f"edgeflock.Fleet(data=...): no fifth of {len(train)} samples can be held out")
    test, *parts = datasets.deal(train, _FIFTH)
    return datasets.concatenate(parts), test, (_IN_MEMORY, _IN_MEMORY)
