"""Inputs and results of Python's codecs and training, which those in JavaScript must repeat."""

import base64
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from edgeflock.client.training.calibration import Calibration
from edgeflock.client.training.local_optimizer import Adafactor, LocalOptimizer
from edgeflock.client.training.personal import PersonalBackend
from edgeflock.client.training.replica import Replica
from edgeflock.client.training.selector import SelectionMemory, select, take_back
from edgeflock.shared.codecs import activity, entries, grid, labels, moments, sparse, values
from edgeflock.shared.errors import BadGraph
from edgeflock.shared.graphs.footprint import footprint
from edgeflock.shared.graphs.reading import read
from edgeflock.shared.graphs.writing import write
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.personal import Personal, whole_layout
from edgeflock.shared.model.start import Filling, Start, generate
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import (
    ORDER,
    PROTOCOL,
    Goodbye,
    Hello,
    Model,
    Pull,
    Receipt,
    Refusal,
    Stop,
    Telemetry,
    Update,
    Welcome,
)
from tests.fuzzing.graphs import CORPUS, GRAPHS, damaged_graphs

SHAPES: list[Any] = [
    ["conv.weight", [8, 5]],
    ["nothing", [0]],
    ["scale", []],
    ["dense.weight", [40, 30]],
    ["dense.bias", [10]],
]
LAYOUT = Layout.from_shapes(SHAPES)
"""1,251 parameters: an empty tensor and a scalar among them."""

NORMED: list[Any] = [*SHAPES, ["norm.running_mean", [3], True], ["norm.running_var", [3], True]]


def text(octets: bytes | np.ndarray[Any, Any]) -> str:
    """In base64: little-endian, in C order."""
    return base64.b64encode(octets if isinstance(octets, bytes) else octets.tobytes()).decode()


def gradient(random: np.random.Generator) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Few entries are large, in some rows and columns; some are zeros."""
    parts = []
    for rows, columns in LAYOUT.grids:
        scale = np.outer(random.lognormal(0, 2, rows), random.lognormal(0, 2, columns))
        part = random.standard_normal((rows, columns)) * scale * 1e-3
        parts.append((part * (random.random((rows, columns)) < 0.8)).ravel())
    return np.concatenate(parts).astype(np.float32)


def places(random: np.random.Generator, count: int, size: int = LAYOUT.size) -> Any:
    return np.sort(random.choice(size, count, replace=False)).astype(np.int64)


def value_vectors() -> Iterator[Any]:
    for mode, name in enumerate(("f32", "f16", "int8", "codebook4", "sign", "scale")):
        for seed, count in enumerate((0, 1, 7, 300)):
            random = np.random.default_rng([mode, seed])
            where = places(random, count)
            numbers, counts = gradient(random)[where], LAYOUT.counts(where)
            if seed == 3:
                numbers = np.concatenate(
                    (np.array([0, -0.0, 1e-8, -7e4, 3e-5, 65519], np.float32), numbers[6:])
                )
            octets = values.encode(numbers, counts, name)
            decoded = values.decode(octets, counts, mode)
            yield {
                "mode": mode,
                "values": text(numbers),
                "counts": counts.tolist(),
                "octets": text(octets),
                "decoded": text(decoded),
            }


def index_vectors() -> Iterator[Any]:
    for mode in (sparse.RAW, sparse.GOLOMB, sparse.RUNS):
        for seed, (count, size) in enumerate(((0, 9), (1, 1), (5, 40), (40, 41), (300, 1251), (99, 1 << 22))):
            where = places(np.random.default_rng([mode, seed]), count, size)
            octets = sparse.encode(where, size, mode)
            yield {"mode": mode, "size": size, "indices": where.tolist(), "octets": text(octets)}


def grid_vectors() -> Iterator[Any]:
    for seed, count in enumerate((0, 1, 5, 40, 200, 1251)):
        random = np.random.default_rng(seed)
        numbers = gradient(random)
        where = np.sort(np.argsort(-np.abs(numbers), kind="stable")[:count]).astype(np.int64)
        past = activity.initial(LAYOUT)
        for _ in range(seed % 3):
            past = activity.follow(past, places(random, 60), LAYOUT)
        octets = grid.encode(where, numbers[where] < 0, LAYOUT, past)
        yield {
            "indices": where.tolist(),
            "negative": (numbers[where] < 0).astype(int).tolist(),
            "activity": past.tolist(),
            "octets": None if octets is None else text(octets),
            "after": activity.follow(past, where, LAYOUT).tolist(),
        }


def entry_vectors() -> Iterator[Any]:
    for seed, (indices, coding) in enumerate(((3, 5), (2, 3), (2, 4), (1, 0), (4, 1), (3, 5))):
        numbers = gradient(np.random.default_rng(seed))
        where = None if seed == 5 else places(np.random.default_rng(seed), 50)
        kept = numbers if where is None else numbers[where]
        coded = entries.encode(kept, where, LAYOUT, indices, coding)
        yield {
            "entries": text(kept),
            "where": None if where is None else where.tolist(),
            "modes": [indices, coding],
            "coded": [coded.index_mode, coded.value_mode, text(coded.indices), text(coded.values)],
        }


def start_vectors() -> Iterator[Any]:
    for seed in (0, 7, (1 << 63) - 1):
        fillings = [(0, 0.25, 0), (1, -1, 1), (2, 0.125, 0.5), (1, -0.1, 0.3), (2, 0, 0.05)]
        fillings = [(kind, float(np.float32(a)), float(np.float32(b))) for kind, a, b in fillings]
        start = Start(seed, tuple(Filling(*filling) for filling in fillings))
        yield {"seed": str(seed), "fillings": fillings, "theta": text(generate(start, LAYOUT))}


def model_vectors() -> Iterator[Any]:
    """What a replica holds after each of some Models: whole, exact and lossy ones."""
    random, layout = np.random.default_rng(5), Layout.from_shapes(NORMED)
    replica, past = Replica(layout), activity.initial(layout.parameters)
    for version in range(14):
        whole = version in (0, 9)
        if version == 5:
            where = places(random, 60, layout.size)
            octets = values.encode(random.standard_normal(60).astype(np.float32), layout.counts(where), "f32")
            model = Model(5, 4, sparse.RUNS, 0, 60, sparse.encode(where, layout.size, 4), octets, False)
            past = activity.initial(layout.parameters)
        elif version == 11:
            model = Model(11, 10, sparse.GRID, 5, 0, b"", b"", True)
        elif whole:
            coding = "int8" if version else "f32"
            octets = values.encode(
                random.standard_normal(layout.size).astype(np.float32), layout.counts(None), coding
            )
            mode = values.CODINGS[coding].mode
            model = Model(version, None, sparse.DENSE, mode, layout.size, b"", octets, bool(version))
            past = activity.initial(layout.parameters)
        else:
            numbers = gradient(random)
            where = np.sort(np.argsort(-np.abs(numbers), kind="stable")[:40]).astype(np.int64)
            coded = entries.encode(numbers[where], where, layout.parameters, sparse.GRID, 5, past)
            statistics = values.encode_statistics(random.random(6).astype(np.float32))
            octets = coded.values + (statistics if version % 2 else b"")
            model = Model(version, version - 1, *coded[:2], 40, coded.indices, octets, True)
            past = activity.follow(past, where, layout.parameters)
        replica.take(model)
        yield {
            "record": text(wire.encode(model)),
            "theta": text(replica.theta),
            "held": replica.held,
            "version": replica.version,
        }


def welcome(**fields: Any) -> Welcome:
    """The terms of a run like the defaults, but for `fields`."""
    fillings = tuple(Filling(1, -0.25, 0.25) for _ in SHAPES)
    usual = Welcome(
        protocol=PROTOCOL, run="5f3c0ad1e2b49687", model="nets:Tiny", loss="cross_entropy", layout=SHAPES,
        start=Start(7, fillings), version=3, sequence=7, batch=10, local_steps=1, local_rate=0.0625,
        select=0.03125, balance=0.5, threshold=0.0, feedback=0.25, indices=3, values=5, frame_bytes=1 << 26,
        alpha=0.0, beta=0.0,
    )  # fmt: skip
    return replace(usual, **fields)


RUNS: dict[str, dict[str, Any]] = {
    "the defaults": {"adafactor": 0.9375, "balances": True, "select_interval": 4},
    "a threshold": {"threshold": 0.375},
    "significance": {"significance": 0.5, "decays": True, "indices": 2, "values": 3},
    "all of it": {"select": 1.0},
    "no feedback": {"feedback": 0.0},
}


def selection_vectors() -> Iterator[Any]:
    for name, fields in RUNS.items():
        terms, random, memory = welcome(**fields), np.random.default_rng(3), SelectionMemory()
        steps = []
        for number, base in enumerate((0, 1, 3, 10, 40, 41, 90), 1):
            own, theta = gradient(random), random.standard_normal(LAYOUT.size).astype(np.float32)
            selection, memory = select(memory, own, LAYOUT, terms, theta, number, base)
            refused = number == 3
            memory = take_back(memory) if refused else memory
            steps.append(
                {
                    "gradient": text(own),
                    "theta": text(theta),
                    "base": base,
                    "refused": refused,
                    "corrected": text(selection.gradient),
                    "indices": None if selection.positions is None else selection.positions.tolist(),
                    "modes": [selection.indices, selection.values],
                }
            )
        yield {"name": name, "welcome": text(wire.encode(terms)), "steps": steps}


OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adafactor": {"adafactor": 0.9375},
    "adam": {"adam": True},
    "momentum": {"momentum": 0.5, "proximal": 0.25},
}


def optimizer_vectors() -> Iterator[Any]:
    for name, fields in OPTIMIZERS.items():
        terms, random = welcome(**fields), np.random.default_rng(4)
        theta = random.standard_normal(LAYOUT.size).astype(np.float32)
        own = Adafactor(LAYOUT, terms.adafactor, terms.start) if terms.adafactor else None
        optimizer, steps = LocalOptimizer(theta, terms, own), []
        for number in range(16):
            here, new = theta + np.float32(0.01 * number), gradient(random)
            fleet = b""
            if own is not None and number == 6:
                fleet = moments.encode(moments.factor(np.square(gradient(random)), LAYOUT))
                own.take(fleet, 0.75)
            direction = optimizer.direction(here, new)
            report = b"" if own is None else own.report(100 * number)
            means = moments.decode(report, LAYOUT) if report else np.zeros(0, np.float32)
            steps.append(
                {
                    "theta": text(here),
                    "gradient": text(new),
                    "fleet": text(fleet),
                    "direction": text(direction),
                    "reported": text(means.astype(np.float32)),
                }
            )
        yield {"name": name, "welcome": text(wire.encode(terms)), "steps": steps}


class Given:
    """A backend of a layout that gives the gradient `next`, and notes theta."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.theta = self.next = np.zeros(0, np.float32)

    def gradient(self, theta: Any, x: Any, y: Any) -> Gradient:
        self.theta = theta.copy()
        return Gradient(0.5, self.next, np.zeros(self.layout.buffers, np.float32))


def personal_vectors() -> Iterator[Any]:
    """Personal layers of a model with running statistics, at gradients that a backend might give."""
    shared: list[Any] = [["w", [4, 3]], ["m", [3], True]]
    own: list[Any] = [["head", [2, 3]], ["bias", [3]]]
    nothing = np.zeros(0, np.int64)
    start = Start(9, (Filling(1, -0.5, 0.5), Filling(0, 0.25, 0.0)))
    for adafactor in (0.0, 0.9375):
        terms = replace(
            welcome(adafactor=adafactor),
            layout=shared,
            start=Start(9, start.tensors),
            personal=Personal(own, start),
        )
        whole = whole_layout(Layout.from_shapes(shared), own)
        given, random, steps = Given(whole), np.random.default_rng(8), []
        backend = PersonalBackend(given, terms)
        for number in range(14):
            new = random.standard_normal(whole.parameters.size).astype(np.float32)
            if number == 7:
                new[-1] = np.inf
            given.next = new
            theta = random.standard_normal(backend.layout.size).astype(np.float32)
            part = backend.gradient(theta, nothing, nothing).gradient
            backend.step()
            steps.append(
                {
                    **{"theta": text(theta), "gradient": text(new), "whole": text(given.theta)},
                    **{"shared": text(part), "own": text(backend.theta)},
                }
            )
        yield {"welcome": text(wire.encode(terms)), "steps": steps}


def calibration_vectors() -> Iterator[Any]:
    random, calibration = np.random.default_rng(6), Calibration(LAYOUT, batch=20)
    for number in range(12):
        y = random.integers(-1, 3, 20)
        shares = np.bincount(y[y >= 0], minlength=10) / (y >= 0).sum()
        mean = random.dirichlet(np.ones(10))
        new = gradient(random)
        new[-10:] = mean - shares
        calibration.observe(new, y)
        report = calibration.report(number)
        shares, lately = random.dirichlet(np.ones(10)), random.dirichlet(np.ones(10))
        fleet = labels.encode(np.stack([shares, lately if number == 5 else shares]))
        if number in (5, 8):
            calibration.take(fleet)
        yield {
            "y": y.tolist(),
            "gradient": text(new),
            "report": text(report),
            "fleet": text(fleet if number in (5, 8) else b""),
            "shifted": text(calibration.shift(np.ones(LAYOUT.size, np.float32))),
            "importance": calibration.importance,
            "overlap": calibration.overlap,
        }


def record_vectors() -> dict[str, Any]:
    """Records of a device, as fields and as bytes; and bytes of a server."""
    usual = Update(8, 3, 3, 5, 5, b"\x98\x5e\x26", b"\xb8\xa8", 0.5, 10, True)
    more = replace(
        usual, held=65500, facts={"step": 0.25, "depth": 40}, pull=False, moments=b"m", labels=b"l"
    )
    updates = (
        usual,
        more,
        replace(usual, loss=float("nan"), index_mode=2, value_mode=3),
        replace(usual, loss=0.0),
    )
    return {
        "updates": [
            [
                {
                    **{name: getattr(one, name) for name in ("sequence", "base", "count", "samples", "held")},
                    **{"indexMode": one.index_mode, "valueMode": one.value_mode, "pull": one.pull},
                    **{"facts": one.facts, "loss": one.loss if one.loss == one.loss else None},
                    **{name: text(getattr(one, name)) for name in ("indices", "values", "moments", "labels")},
                },
                text(wire.encode(one)),
            ]
            for one in updates
        ],
        "others": {
            "hello": text(wire.encode(Hello(2, "pi-7", b"1234", {"cores": 4}, False, b"s", "", b"p"))),
            "pull": text(wire.encode(Pull(None))),
            "pull_held": text(wire.encode(Pull(5, 65500))),
            "telemetry": text(wire.encode(Telemetry({"paused": "hot"}))),
            "goodbye": text(wire.encode(Goodbye("retired: stopped by its owner"))),
        },
        "receipt": text(wire.encode(Receipt(9, 6, Model(8, 5, 3, 5, 0, b"", b"", True), b"m", b"l"))),
        "refusal": text(wire.encode(Refusal("base-expired", "pull again", 8, 3))),
        "stop": text(wire.encode(Stop("the run is over"))),
        "fields": [len(ORDER[kind]) for kind in (Welcome, Model, Receipt, Refusal, Stop)],
        "welcome": text(wire.encode(welcome(significance=0.5, input=(3, 4), secret=b"12", evaluate=9))),
    }


def graph_vectors() -> Iterator[Any]:
    """Graphs that a server might serve, whole and damaged, and what Python makes of them."""
    whole = [path.read_bytes() for path in sorted(GRAPHS.glob("*.onnx"))]
    corpus = [path.read_bytes() for path in sorted(CORPUS.glob("*.onnx"))]
    for octets in (*whole, *corpus, *islice(damaged_graphs(11), 400)):
        yield {"octets": text(octets), **_weighed(octets)}


def _weighed(octets: bytes) -> dict[str, Any]:
    try:
        graph = read(octets)
    except BadGraph as error:
        return {"read": None, "why": str(error)}
    shapes = {port.name: tuple(2 if isinstance(d, str) else d for d in port.shape) for port in graph.inputs}
    found: dict[str, Any] = {"read": text(write(graph)), "shapes": {k: list(v) for k, v in shapes.items()}}
    try:
        cost = footprint(graph, shapes)
    except BadGraph as error:
        return {**found, "cost": None, "why": str(error)}
    outputs = {name: [info.type, list(info.shape)] for name, info in cost.outputs.items()}
    return {**found, "cost": [cost.octets, cost.work], "outputs": outputs}


def gradient_vectors() -> Iterator[Any]:
    """Steps of graphs in native onnxruntime, whose gradients are functions of theta and the batch."""
    for name in ("DigitsCNN", "LSTMTagger", "TabularMLP", "normed"):
        octets = (GRAPHS / f"{name}.onnx").read_bytes()
        random = np.random.default_rng(len(name))
        session = onnxruntime.InferenceSession(octets, providers=["CPUExecutionProvider"])
        made = {one.name.partition("/")[2]: one.shape for one in session.get_outputs() if "/" in one.name}
        buffers = {one.name for one in session.get_outputs() if one.name.startswith("buffer/")}
        shapes: list[Any] = [[n, s, *([True] if f"buffer/{n}" in buffers else [])] for n, s in made.items()]
        layout = Layout.from_shapes(shapes)
        theta = (0.1 * np.abs(random.standard_normal(layout.size))).astype(np.float32)
        ports = {one.name: one for one in session.get_inputs()}
        feeds: dict[str, Any] = {
            f"theta/{t.name}": theta[t.start : t.stop].reshape(t.shape)
            for t in layout.tensors
            if f"theta/{t.name}" in ports
        }
        feeds["x"] = random.standard_normal((6, *ports["x"].shape[1:])).astype(np.float32)
        whole = "int64" in ports["y"].type
        y = random.integers(0, 2, (6, *ports["y"].shape[1:]))
        feeds["y"] = y if whole else y.astype(np.float32)
        loss, *parts = session.run(
            ["loss", *(f"gradient/{n}" for n in made if f"buffer/{n}" not in buffers)], feeds
        )
        yield {
            "octets": text(octets),
            "shapes": shapes,
            "theta": text(theta),
            "x": text(feeds["x"]),
            "shape": list(feeds["x"].shape[1:]),
            "y": text(y.astype(np.int32 if whole else np.float32)),
            "whole": whole,
            "loss": float(loss),
            "gradient": text(np.concatenate([part.ravel() for part in parts])),
        }


def all_vectors() -> dict[str, Any]:
    """All of them, as JSON has them."""
    lists: dict[str, Callable[[], Iterator[Any]]] = {
        "values": value_vectors,
        "indices": index_vectors,
        "grids": grid_vectors,
        "entries": entry_vectors,
        "starts": start_vectors,
        "models": model_vectors,
        "selections": selection_vectors,
        "optimizers": optimizer_vectors,
        "personal": personal_vectors,
        "calibrations": calibration_vectors,
        "graphs": graph_vectors,
        "gradients": gradient_vectors,
    }
    made: dict[str, Any] = {name: list(make()) for name, make in lists.items()}
    digests = [text(LAYOUT.digest), text(Layout.from_shapes(NORMED).digest)]
    return {**made, "records": record_vectors(), "layout": SHAPES, "normed": NORMED, "digests": digests}


def path_of(directory: Path) -> Path:
    """The file of all vectors in `directory`, made if it is not there."""
    import json

    path = directory / "vectors.json"
    if not path.exists():
        path.write_text(json.dumps(all_vectors()))
    return path
