"""Makes one of the journals beside this file, with the code of an old commit; see README.md.

What that code recovers and replays from the journal goes to stdout, as its entry in expected.json.
Everything of Edgeflock is looked up by its name in those commits, which today's code need not have; `MOVED`
says where it is since there are rooms.
"""

import gzip
import json
import shutil
import sqlite3
import struct
import sys
import tempfile
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

ROOMS = find_spec("edgeflock.server.descent") is not None
"""Whether the commit has them."""

MOVED = {
    "server.parameters Regime": "server.descent.regime",
    "server.regime How": "server.descent.how",
    "server.journal Journal": "server.ledger.journal",
    "server.journal Evaluation": "shared.protocol.frames",
    "server.recovery recover": "server.ledger.recovery",
    "server.recovery replay": "server.ledger.recovery",
    "server.engine Bounds": "server.engine.limits",
    "server.engine Engine": "server.engine.engine",
    "server.engine Push": "server.coordination.coordinator",
    "shared.layout Layout": "shared.model.layout",
    "shared.messages Update": "shared.protocol.messages",
    "shared.sparse": "shared.codecs.sparse",
    "shared.values": "shared.codecs.values",
    "shared.grid": "shared.codecs.grid",
    "shared.wire": "shared.protocol.wire",
}


def named(module: str, name: str = "") -> Any:
    place = MOVED[f"{module} {name}".strip()] if ROOMS else module
    found = import_module(f"edgeflock.{place}")
    return getattr(found, name) if name else found


Regime: Any = named("server.parameters", "Regime")
BEGAN = 1_763_740_800.0
SHAPES: list[Any] = [["kernel", [4, 5]], ["bias", [4]], ["scale", []]]
STATISTICS: list[Any] = [["mean", [3], True], ["variance", [3], True]]
ROUNDS = {"average": 3.0, "base_batch": 16, "rounds": True}
FALLING = {"schedule": "step", "schedule_unit": "seconds", "period": 4.0, "warmup": 2.0}

# Journal -> (whether the model keeps running statistics, [(settings of the regime, updates under it), ...]).
RUNS: dict[str, tuple[bool, list[tuple[dict[str, Any], int]]]] = {
    "schema-1-first": (False, [({"rule": "none"}, 21), ({"rule": "none", "learning_rate": 0.03}, 16)]),
    "schema-1": (False, [({}, 21), ({"rule": "tau", "window": 3}, 16)]),
    "schema-2-first": (False, [({"average": 8.0}, 21), ({"rule": "tau", "average": 3.0}, 20)]),
    "schema-2": (False, [({}, 21), ({"average": 8.0}, 0), ({"rule": "tau", "average": 3.0}, 36)]),
    "schema-3": (True, [({"average": 8.0}, 21), ({"average": 8.0, "base_batch": 16}, 36)]),
    "schema-4": (True, [({"average": 3.0}, 21), ({"rule": "none", **ROUNDS}, 36)]),
    "schema-4-last": (
        True,
        [
            ({}, 40),
            ({"average": 3.0, "base_batch": 16}, 50),
            ({"rule": "tau", "window": 4096, "average": 3.0}, 40),
            ({"rule": "none", **ROUNDS}, 60),
            ({"window": 300}, 50),
        ],
    ),
    "schema-5": (
        True,
        [
            ({}, 40),
            ({"average": 3.0, "base_batch": 16}, 50),
            ({"rule": "tau", "window": 4096, "average": 3.0}, 40),
            ({"rule": "none", **ROUNDS}, 60),
            ({"window": 300}, 50),
        ],
    ),
    "schema-6": (True, [({"average": 3.0}, 21), ({"rule": "none", **ROUNDS}, 36)]),
    "schema-7": (True, [({"average": 3.0}, 21), ({"rule": "none", **ROUNDS}, 36)]),
    "schema-8": (True, [({"average": 3.0}, 21), ({"rule": "none", **ROUNDS}, 36), ({"average": 3.0}, 25)]),
    "schema-9": (
        True,
        [
            ({"average": 3.0, "how": {"kind": "adamw", "weight_decay": 0.1, **FALLING}}, 21),
            ({"rule": "none", **ROUNDS, "how": {"kind": "nesterov", "clip": 0.5}}, 36),
            ({"rule": "sqrt", "how": {"kind": "adam", "together": 4}}, 30),
            ({"average": 3.0}, 20),
            ({"how": {"kind": "adagrad", "together": 3, "schedule": "cosine", "period": 300.0}}, 22),
        ],
    ),
    "schema-10": (
        True,
        [
            ({"average": 3.0}, 40),
            ({"rule": "none", **ROUNDS, "how": {"aggregate": "median"}}, 36),
            ({"how": {"kind": "adam", "together": 4}}, 30),
        ],
    ),
    "schema-11": (True, [({"rule": "none"}, 45), ({"average": 3.0}, 20)]),
    "schema-12": (True, [({"rule": "none"}, 45), ({"average": 3.0}, 20)]),
    "schema-13": (True, [({"rule": "none"}, 45), ({"average": 3.0}, 20)]),
}
SINCE = [
    "schema-1-first",
    "schema-1",
    "schema-2-first",
    "schema-2",
    "schema-3",
    "schema-4",
    "schema-4-last",
    "schema-5",
    "schema-6",
    "schema-7",
    "schema-8",
    "schema-9",
    "schema-10",
    "schema-11",
    "schema-12",
    "schema-13",
]
WITHOUT_A_LOSS = SINCE[1:]
"""Made by commits that take a loss that is no number."""
OF_NO_SAMPLES = SINCE[:5]
"""Made by commits that take an update of no samples."""
GRID = SINCE[3:]
ADJUSTED = SINCE[6:]
STARTED = SINCE[8:]
"""Made by commits that remember how a first model is made from a seed."""
MARKED = SINCE[10:]
"""Made by commits that note beside the journal how far it got."""
MEASURED = SINCE[13:]
"""Made by commits that remember metrics of evaluations."""
DESCRIBED = SINCE[14:]
"""Made by commits that remember what samples are."""
DEFENDED = SINCE[12:]
"""Made by commits that remember what part of an update counts: of some half, of some nothing."""
START = (7, ((2, 0.0, 0.75), (1, -0.5, 0.25), (0, 0.5, 0.0), (0, 0.0, 0.0), (0, 1.0, 0.0)))
"""Normal, uniform, and constants."""


class Drops:
    """Stands for a guard: by their samples it takes, halves and drops updates."""

    trusts = False

    def decide(self, *told: Any) -> Any:
        """Of (device, step, weight), and before these the version, where the journal knows why."""
        step, weight = told[-2:]
        defence = import_module("edgeflock.server.defence")
        share = (1.0, 0.5, 0.0)[step.samples % 3]
        if len(told) < 4:
            more = [None] * (len(defence.Decision.__slots__) - 3)  # the device's standing, which came later
            return defence.Decision(share, 0.0, None, *more)
        if step.samples % 5 == 0:
            return defence.Decision(share, weight * step.samples)
        return defence.Decision(share, weight / 4, defence.Agreement(0.5, 0.25, -0.125), step.samples / 8)

    def took(self, *told: Any) -> None:
        pass


class Run:
    """Updates of three devices, the same ones each time."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name, self.path = name, directory / "journal.sqlite"
        self.normed, self.phases = RUNS[name]
        self.layout = named("shared.layout", "Layout").of(SHAPES + STATISTICS * self.normed)
        self.random = np.random.default_rng(5)
        self.sequences = [0, 0, 0, 0]
        self.now = BEGAN
        self.recovered: Any = None

    def open(self, settings: dict[str, Any]) -> None:
        if "how" in settings:
            settings = {**settings, "how": named("server.regime", "How")(**settings["how"])}
        self.regime = Regime(**{"rule": "adacomp", "learning_rate": 0.1, "window": 6, **settings})
        self.journal = named("server.journal", "Journal")(self.path)
        if self.journal.run() is None:
            self.begin()
        recover = named("server.recovery", "recover")
        self.recovered = recover(self.journal, self.layout, self.regime)
        bounds = named("server.engine", "Bounds")(snapshot_every=13)
        made = (self.journal, self.layout, self.recovered)
        more = (self.coordinator(), bounds) if ROOMS else (bounds,)
        guard = {"guard": Drops()} if self.name in DEFENDED else {}
        self.engine = named("server.engine", "Engine")(*made, *more, **guard)
        self.devices = [self.engine.device_id(f"device-{i}") for i in range(3)]

    def begin(self) -> None:
        theta, start = np.random.default_rng(0).standard_normal(self.layout.size).astype(np.float32), []
        if self.name in STARTED:
            starts = import_module("edgeflock.shared.model.start")
            start = [starts.Start(START[0], tuple(starts.Filling(*filling) for filling in START[1]))]
            theta = starts.generate(*start, self.layout)
        if self.name in DESCRIBED:
            description = import_module("edgeflock.shared.model.description").Description
            columns = ("warm", "mode"), (21.5, 0.0), (0.25, 1.0)
            start.append(description(*columns, (), True, (3.5, 0.5), ((), ("auto", "off"))))
        self.journal.begin_run("5f3c0ad1e2b49687", "package:Model", self.layout, theta, BEGAN, *start)

    def coordinator(self) -> Any:
        """One whose rounds end at second 30 and not before."""
        coordination = import_module("edgeflock.server.coordination.rounds")
        if self.regime.rounds:
            aggregate = [self.regime.how.aggregate] if self.name in DEFENDED else []
            return coordination.Rounds(coordination.Ending(1 << 30, 30.0), self.layout, *aggregate)
        return import_module("edgeflock.server.coordination.asynchronous").Asynchronous()

    @property
    def steering(self) -> Any:
        return getattr(self.engine, "steering", self.engine)

    @property
    def version(self) -> int:
        return int(self.engine.published.version if ROOMS else self.engine.version)

    def take_round(self, pushes: list[Any]) -> None:
        held = self.engine.commit(pushes)
        assert held == ([] if ROOMS else [None] * len(pushes)), held
        if ROOMS:
            self.engine.commit([], 30.0)
        else:
            self.engine.end_round()

    def take(self, push: Any) -> None:
        (answer,) = self.engine.commit([push])
        receipt = answer[1].receipt if ROOMS else answer
        assert receipt.version == self.version, receipt

    def push(self, device: int, base: int) -> Any:
        sparse, values, wire = named("shared.sparse"), named("shared.values"), named("shared.wire")
        trained = self.layout.parameters if self.normed else self.layout
        self.sequences[device] += int(self.random.integers(1, 4))
        self.now += float(self.random.integers(1, 5)) / 4
        delta = self.random.standard_normal(trained.size).astype(np.float32)
        where = np.flatnonzero(self.random.random(trained.size) < 0.3)
        coding = str(self.random.choice(["f32", "f16", "int8", "codebook4", "sign", "dense", "raw", "grid"]))
        mode, value_coding = sparse.GOLOMB, coding
        if coding == "dense":
            mode, where, value_coding = sparse.DENSE, np.arange(trained.size), "f32"
        elif coding == "raw" or coding == "grid":
            mode, value_coding = sparse.RAW, "f32"
        delta = delta[where]
        counts = trained.counts(None if mode == sparse.DENSE else where)
        indices = b"" if mode == sparse.DENSE else sparse.encode(where, trained.size, mode)
        if coding == "grid" and self.name in GRID:
            mode, value_coding = sparse.GRID, "scale"
            indices = named("shared.grid").encode(where, delta < 0, trained)
        octets = values.encode(delta, counts, value_coding)
        if self.normed:
            octets += struct.pack("<6e", *self.random.standard_normal(6))
        loss = 0.5 + 2 / self.sequences[device]
        samples = int(self.random.integers(8, 33))
        if sum(self.sequences) % 9 == 0 and self.name in WITHOUT_A_LOSS:
            loss = float("nan")
        if sum(self.sequences) % 7 == 0 and self.name in OF_NO_SAMPLES:
            samples = 0
        update = named("shared.messages", "Update")(
            self.sequences[device],
            base,
            mode,
            values.CODINGS[value_coding].mode,
            where.size,
            indices,
            octets,
            loss,
            samples,
            False,
        )
        return named("server.engine", "Push")(self.devices[device], self.now, update, wire.encode(update))

    def phase(self, settings: dict[str, Any], updates: int) -> None:
        """Open, push, and end as if killed: no snapshot of the last version."""
        self.open(settings)
        end = self.version + updates
        while self.version < end:
            if getattr(self.regime, "rounds", False):
                members = [0, 1, 2][: min(1 + self.version % 3, end - self.version)]
                self.take_round([self.push(i, self.version) for i in members])
            else:
                base = int(self.random.integers(self.engine.parameters.oldest, self.version + 1))
                self.take(self.push(int(self.random.integers(0, 3)), base))
            if self.version % 10 == 0:
                self.evaluate()
            if self.name in ADJUSTED and end - self.version == 20:
                self.steering.adjust(self.regime.learning_rate / 4, self.regime.learning_rate)
        self.sum_up()
        self.journal.close()

    def evaluate(self) -> None:
        version = self.version
        metrics = [{"f1": 1 / version, "failed": None}] if self.name in MEASURED and version != 20 else []
        evaluation = named("server.journal", "Evaluation")(
            version,
            self.now,
            2 / version,
            None if version == 20 else 1 - 1 / version,
            900 * version,
            70 * version,
            *metrics,
        )
        self.steering.record(evaluation, [(device, 300 * version, 23 * version) for device in self.devices])

    def sum_up(self) -> None:
        live = self.engine.parameters
        self.live = {
            "version": live.version,
            "theta": sha256(live.theta.tobytes()).hexdigest(),
            "average": digest(getattr(live, "average", None)),
        }


def pack(path: Path, to: Path) -> None:
    with open(path, "rb") as file, open(to, "wb") as out:
        with gzip.GzipFile("", "wb", 9, out, mtime=0) as packed:
            shutil.copyfileobj(file, packed)


def digest(vector: Any) -> str | None:
    return None if vector is None else sha256(vector.tobytes()).hexdigest()


def found(parameters: Any) -> dict[str, Any]:
    average = digest(getattr(parameters, "average", None))
    return {"version": parameters.version, "theta": digest(parameters.theta), "average": average}


def main(name: str, commit: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        run = Run(name, Path(scratch))
        for settings, updates in run.phases:
            run.phase(settings, updates)
        with sqlite3.connect(run.path) as db:
            assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
            (schema,) = db.execute("PRAGMA user_version").fetchone()
            snapshot = db.execute("SELECT max(version) FROM snapshots").fetchone()[0]
        db.close()
        assert snapshot < run.live["version"], "a recovery has something to replay"
        pack(run.path, folder / f"{name}.sqlite.gz")
        if name in MARKED:
            pack(run.path.with_name("journal.sqlite-mark"), folder / f"{name}.sqlite-mark.gz")
        run.open(run.phases[-1][0])
        recovered = found(run.recovered)
        replayed = found(named("server.recovery", "replay")(run.journal, run.layout))
        run.journal.close()
        assert recovered == run.live == replayed, (recovered, run.live, replayed)
        last = [getattr(run.regime, field) for field in run.regime.__slots__]
        last = [value.text() if hasattr(value, "text") else value for value in last]
        print(json.dumps({name: {"commit": commit, "schema": schema, "regime": last, **recovered}}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
