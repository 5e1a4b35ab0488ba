"""Cells in worker processes, each finished one appended at once: what stands in the file is not run again."""

import logging
import multiprocessing
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from benchmarks.learning import cells
from benchmarks.learning.arms import PRODUCT
from benchmarks.learning.cells import Cell, Results
from edgeflock.papers.machine import commit, machine

HOUSES = ("shared", "client", "server", "devices")
"""Folders of the product that a run depends on."""

Play = Callable[[Cell], dict[str, Any]]
"""What gives the figures of a cell. It is imported by the worker, so it must be a function of a module."""


@dataclass(slots=True)
class Worker:
    """A process that plays one cell at a time."""

    process: BaseProcess
    line: "Connection[Any, Any]"
    cell: Cell | None = None

    @classmethod
    def start(cls, play: Play) -> "Worker":
        """Spawned: a forked child would inherit torch's threads in an unknown state."""
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(there, play), daemon=True)
        process.start()
        there.close()
        return cls(process, here)

    def take(self, cell: Cell) -> None:
        """Begin with a cell."""
        self.cell = cell
        self.line.send(cell)

    def outcome(self) -> dict[str, Any]:
        """`figures`, or `failed` with the reason: also if the process has died."""
        try:
            found: dict[str, Any] = self.line.recv()
        except (EOFError, OSError):
            self.process.join()
            found = {"failed": f"its process ended with exit code {self.process.exitcode}"}
        self.cell = None
        return found

    def end(self) -> None:
        """At once."""
        self.process.kill()
        self.process.join()
        self.line.close()


def _work(line: "Connection[Any, Any]", play: Play) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    logging.getLogger("edgeflock").setLevel(logging.ERROR)
    while True:
        try:
            cell = line.recv()
        except EOFError:
            return
        try:
            line.send({"figures": play(cell)})
        except Exception as error:  # a cell that fails must not be lost, whatever it raises
            line.send({"failed": f"{type(error).__name__}: {error}"})


def run(
    path: Path,
    planned: Callable[[Results], Iterator[Cell]],
    play: Play,
    workers: int,
    notes: dict[str, Any],
    minutes: float = 0.0,
    again: Callable[[Cell, Mapping[str, Any]], bool] = lambda cell, record: False,
    tell: Callable[[str], None] = print,
) -> None:
    """Run the cells of a plan that do not stand in the file, and append each as it ends.

    The plan is made anew after each cell, since best settings come of results. After `minutes` (0: never) the
    cells at work are given up, and nothing is noted of them. A record that `again` is true of does not count.
    """
    results = {cell: record for cell, record in cells.read(path).items() if not again(cell, record)}
    ends = time.monotonic() + 60 * minutes if minutes else None
    crew: list[Worker] = []
    before = signal.signal(signal.SIGTERM, _exit)  # so that workers end with this process
    try:
        while True:
            busy = {worker.cell for worker in crew if worker.cell is not None}
            waiting = (cell for cell in planned(results) if cell not in results and cell not in busy)
            while len(busy) < workers and (cell := next(waiting, None)) is not None:
                worker = next((one for one in crew if one.cell is None), None)
                if worker is None:
                    crew.append(worker := Worker.start(play))
                worker.take(cell)
                busy.add(cell)
            if not busy:
                return
            left = None if ends is None else max(0.0, ends - time.monotonic())
            ready = wait([worker.line for worker in crew if worker.cell is not None], left)
            if not ready:
                tell(f"the time is over; given up: {', '.join(str(cell) for cell in busy)}")
                return
            for worker in [one for one in crew if one.line in ready]:
                done = worker.cell
                assert done is not None, "only workers with a cell are waited for"
                record = {
                    **worker.outcome(),
                    **notes,
                    "date": datetime.now(UTC).isoformat(timespec="seconds"),
                }
                if not worker.process.is_alive():
                    worker.end()
                    crew.remove(worker)
                cells.append(path, done, record)
                results[done] = record
                tell(f"{done}: {shown(record)}")
    finally:
        for worker in crew:
            worker.end()
        signal.signal(signal.SIGTERM, before)


def _exit(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def shown(record: dict[str, Any]) -> str:
    """A record in a few words."""
    if "figures" not in record:
        return f"failed: {record['failed']}"
    figures = record["figures"]
    if "shown" in figures:
        return str(figures["shown"])
    curve = " ".join(f"{100 * row['accuracy']:.1f}" for row in figures["curve"])
    moved = (figures["ingress"] + figures["egress"]) / 1e6
    return f"{100 * figures['mean_of_last']:.1f} ({curve}), {moved:,.1f} MB, {figures['cpu_s']:.0f} s of CPU"


def failed(cell: Cell, record: Mapping[str, Any]) -> bool:
    """Whether a cell failed."""
    return "failed" in record


def outdated(cell: Cell, record: Mapping[str, Any]) -> bool:
    """Whether a cell is of the product as it was before its code changed."""
    return cell.arm.startswith(PRODUCT) and record.get("product") != product()


def notes(command: str) -> dict[str, Any]:
    """What every record says beside its figures."""
    return {"command": command, "commit": commit(), "product": product(), "machine": machine()}


@cache
def product() -> str:
    """A name of the product's committed code, which a change of documents or benchmarks leaves as it is."""
    try:
        trees = _git(Path(__file__).parent, "rev-parse", *(f"HEAD:{house}" for house in HOUSES))
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return sha256(trees.encode()).hexdigest()[:10]


def _git(where: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=where, capture_output=True, text=True, check=True)
    return done.stdout.strip()
