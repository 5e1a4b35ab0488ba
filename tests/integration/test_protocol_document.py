"""docs/protocol.md is true and enough: a client written from it alone trains against the server."""

import asyncio
import hashlib
import math
import re
import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgpack
import numpy as np
import pytest

from edgeflock.client.training.replica import Replica
from edgeflock.server.publication import Exact
from edgeflock.shared import identity
from edgeflock.shared.codecs import activity, grid, moments, packed, sparse, values
from edgeflock.shared.errors import REFUSALS, RunComplete, SessionRefused
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.held_out import Sketch
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import CONSTANT, NORMAL, UNIFORM, Filling, Start, Weights, generate
from edgeflock.shared.protocol import app, messages, wire
from tests.hosting import LAYOUT, RUN, hosting, initial_theta
from tests.integration.foreign_client import (
    CHALLENGE,
    CODEBOOK4,
    CREDENTIAL,
    DENSE,
    F16,
    F32,
    GOLOMB,
    GOODBYE,
    GRID,
    HELLO,
    INT8,
    MODEL,
    OVER,
    PULL,
    RAW,
    RECEIPT,
    REFUSAL,
    SAMPLES,
    SCALE,
    SECURE_SUM,
    SIGN,
    STOP,
    TASK,
    TELEMETRY,
    UPDATE,
    WELCOME,
    Copy,
    Device,
    Grid,
    active,
    connected,
    crc,
    decode_indices,
    decode_values,
    encode_values,
    f32,
    first_model,
    frame,
    golomb_decode,
    golomb_encode,
    golomb_steps,
    grid_decode,
    grid_encode,
    inactive,
    input_of,
    join,
    joined,
    load,
    model_of,
    pack,
    proved,
    public_key,
    random_words,
    shares,
    signature,
    unpacked,
    words_of_joining,
    words_of_session,
)
from tests.integration.held import LOSSY, believed

# The document's examples


DOCUMENT = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
EXAMPLES = {
    name: bytes.fromhex("".join(line.partition("#")[0] for line in body.splitlines()))
    for name, body in re.findall(r"```hex (\S+)\n(.*?)```", DOCUMENT, re.DOTALL)
}

TINY = [["w", [9, 4]], ["b", [4]]]
TINY_LAYOUT = Layout.from_shapes([("w", (9, 4)), ("b", (4,))])
FIRST = [7, [[1, -0.5, 0.25], [2, 0.125, 0.5]]]
WHERE = [3, 11, 12, 27, 37]
LEVELS = [0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4]
NUMBERS = {
    "f32": (F32, [0.5, -0.25, 1, -0.25, -0.125]),
    "f16": (F16, [0.5, -0.25, 1, -0.25, -0.125]),
    "int8": (INT8, [63.5, -0.5, 1, -2, -15.875]),
    "codebook4": (CODEBOOK4, [0.375, -1, 0.5, -0.125, -0.125]),
    "sign": (SIGN, [0.5, -0.5, 0.5, -0.5, -0.125]),
    "scale": (SCALE, [0.5, 0.5, 0.5, 0.5, 0.125]),
}
CHANGED = golomb_encode([11, 37], 14), struct.pack("<2f", 0.75, -1.5)
SENT = golomb_encode(WHERE, 5), encode_values(CODEBOOK4, NUMBERS["codebook4"][1], [4, 1], LEVELS)
DIGEST = hashlib.sha256(pack(TINY)).digest()[:16]
ADDED = [3, 11, 12, 27, 37], [0.5, -0.5, 0.5, -0.5, -0.125]
GRIDDED = grid_encode(TINY, {k: number < 0 for k, number in zip(*ADDED, strict=True)}), b"\xb8\xa8"
ADDED_AGAIN = [3, 12, 27, 37], [0.25, -0.25, 0.25, -0.0625]
ACTIVE = active(inactive(TINY), TINY, WHERE)
GRIDDED_AGAIN = (
    grid_encode(TINY, {k: number < 0 for k, number in zip(*ADDED_AGAIN, strict=True)}, ACTIVE),
    b"\xb0\xa0",
)
MOMENTS = EXAMPLES["receipt-moments"][-16:]
OWN_LABELS = struct.pack("<3e", 0.5, 0.25, 0.25)
FLEET_LABELS = OWN_LABELS + struct.pack("<3e", 0.5, 0.5, 0)
STATISTICS = struct.pack("<4e", 0.5, -0.25, 1, 2)
WHOLE = b"\x80\x3d\x00\x3c" + bytes(range(36)) + bytes([127, 0, 129, 1])
STEP = messages.Model(5, 4, GRID, SCALE, 5, *GRIDDED, True)
STEP_AGAIN = messages.Model(6, 5, GRID, SCALE, 4, *GRIDDED_AGAIN, True)
NO_STEP = messages.Model(6, 5, GRID, SCALE, 0, b"", b"", True)
DIFFERENCE = messages.Model(4, 3, GOLOMB, F32, 2, *CHANGED)
TERMS = (3, 7, 10, 1, 0.0625, 0.125, 0.5, 0.25, 0.75, 2, 3, 1 << 26, 0.5, 0.125)
WEIGHTS_DIGEST = hashlib.sha256(EXAMPLES["weights"]).digest()
RECORDS: dict[str, tuple[list[Any], messages.Record]] = {
    "hello": ([HELLO, 2, "pi-7", DIGEST, {"cores": 4}], messages.Hello(2, "pi-7", DIGEST, {"cores": 4})),
    "welcome": (
        [
            WELCOME,
            2,
            RUN,
            "nets:Tiny",
            "mse",
            TINY,
            FIRST,
            3,
            7,
            10,
            1,
            0.0625,
            0.125,
            0.5,
            0.25,
            0.75,
            2,
            3,
            1 << 26,
            0.5,
            0.125,
        ],
        messages.Welcome(
            2,
            RUN,
            "nets:Tiny",
            "mse",
            [*TINY],
            Start(7, (Filling(UNIFORM, -0.5, 0.25), Filling(NORMAL, 0.125, 0.5))),
            3,
            7,
            10,
            1,
            0.0625,
            0.125,
            0.5,
            0.25,
            0.75,
            2,
            3,
            1 << 26,
            0.5,
            0.125,
        ),
    ),
    "welcome-weights": (
        [WELCOME, 2, RUN, "nets:Tiny", "mse", TINY, None, *TERMS, [WEIGHTS_DIGEST, 23, F32, True]],
        messages.Welcome(
            2, RUN, "nets:Tiny", "mse", [*TINY], None, *TERMS, Weights(WEIGHTS_DIGEST, 23, F32, load=True)
        ),
    ),
    "pull": ([PULL, None], messages.Pull(None)),
    "pull-again": ([PULL, 3], messages.Pull(3)),
    "model": ([MODEL, 4, 1, 2, *CHANGED, False, GOLOMB, F32], DIFFERENCE),
    "model-unchanged": ([MODEL, 3, 0], Exact(TINY_LAYOUT, 3).model(np.zeros(40, np.float32), 3)),
    "update": (
        [UPDATE, 8, 3, 5, *SENT, -16, 10, 0, GOLOMB, CODEBOOK4],
        messages.Update(8, 3, GOLOMB, CODEBOOK4, 5, *SENT, 0.5, 10, True),
    ),
    "receipt": ([RECEIPT, 8, 4], messages.Receipt(8, 4, None)),
    "receipt-with-model": (
        [RECEIPT, 8, 4, [0, 1, 2, *CHANGED, False, GOLOMB, F32]],
        messages.Receipt(8, 4, DIFFERENCE),
    ),
    "refusal": (
        [REFUSAL, "base-expired", "pull again", 8],
        messages.Refusal("base-expired", "pull again", 8),
    ),
    "update-facts": (
        [UPDATE, 8, 3, 5, *SENT, -16, 10, 0, GOLOMB, CODEBOOK4, {"depth": 40}],
        messages.Update(8, 3, GOLOMB, CODEBOOK4, 5, *SENT, 0.5, 10, True, {"depth": 40}),
    ),
    "hello-shares": (
        [HELLO, 2, "pi-7", DIGEST, {"cores": 4}, True],
        messages.Hello(2, "pi-7", DIGEST, {"cores": 4}, True),
    ),
    "hello-again": (
        [HELLO, 2, "pi-7", DIGEST, {"cores": 4}, False, bytes(range(16))],
        messages.Hello(2, "pi-7", DIGEST, {"cores": 4}, False, bytes(range(16))),
    ),
    "hello-proof": (
        [HELLO, 2, "pi-7", DIGEST, {"cores": 4}, False, b"", "", EXAMPLES["session-proof"]],
        messages.Hello(2, "pi-7", DIGEST, {"cores": 4}, False, b"", "", EXAMPLES["session-proof"]),
    ),
    "samples": (
        [SAMPLES, 2, True, bytes([0, 51, 255, 102]), True, struct.pack("<2i", 1, 0)],
        messages.Samples(2, True, bytes([0, 51, 255, 102]), True, struct.pack("<2i", 1, 0)),
    ),
    "pull-part": ([PULL, 3, 0, 10, 20], messages.Pull(3, 0, 10, 20)),
    "goodbye": (
        [GOODBYE, "retired: stopped by its owner"],
        messages.Goodbye("retired: stopped by its owner"),
    ),
    "credential": ([CREDENTIAL, "efd1.AAEC"], messages.Credential("efd1.AAEC")),
    "challenge": ([CHALLENGE, bytes(range(32, 64))], messages.Challenge(bytes(range(32, 64)))),
    "telemetry": ([TELEMETRY, {"waiting": 12}], messages.Telemetry({"waiting": 12})),
    "telemetry-paused": ([TELEMETRY, {"paused": "hot 83C"}], messages.Telemetry({"paused": "hot 83C"})),
    "telemetry-goes-on": ([TELEMETRY, {}], messages.Telemetry({})),
    "pull-held": ([PULL, 5, 65500], messages.Pull(5, 65500)),
    "update-held": (
        [UPDATE, 9, 5, 5, *GRIDDED, -16, 10, 65500],
        messages.Update(9, 5, GRID, SCALE, 5, *GRIDDED, 0.5, 10, True, None, 65500),
    ),
    "update-smallest": (
        [UPDATE, 9, 5, 1, grid_encode(TINY, {11: True}), b"\xb8", -16, 10, 65500],
        messages.Update(9, 5, GRID, SCALE, 1, b"\xa0", b"\xb8", 0.5, 10, True, None, 65500),
    ),
    "receipt-held": (
        [RECEIPT, 9, 6, [0, 1, 5, *GRIDDED]],
        messages.Receipt(9, 6, replace(STEP, version=6, base=5)),
    ),
    "receipt-smallest": ([RECEIPT, 9, 6, [0, 1]], messages.Receipt(9, 6, NO_STEP)),
    "model-changes": ([MODEL, 5, 1, 5, *GRIDDED], STEP),
    "model-changes-again": ([MODEL, 6, 1, 4, *GRIDDED_AGAIN], STEP_AGAIN),
    "model-changes-statistics": (
        [MODEL, 5, 1, 5, GRIDDED[0], GRIDDED[1] + STATISTICS],
        replace(STEP, values=STEP.values + STATISTICS),
    ),
    "model-changes-none": (
        [MODEL, 5, 0],
        replace(NO_STEP, version=5),
    ),
    "model-whole": (
        [MODEL, 4, None, 40, b"", WHOLE, True, DENSE, INT8],
        messages.Model(4, None, DENSE, INT8, 40, b"", WHOLE, True),
    ),
    "hello-shards": (
        [HELLO, 2, "pi-7", DIGEST, {"cores": 4}, False, b"", "north,south"],
        messages.Hello(2, "pi-7", DIGEST, {"cores": 4}, shards="north,south"),
    ),
    "update-task": (
        [UPDATE, 9, 5, 5, *GRIDDED, -16, 10, 65500, GRID, SCALE, None, False, 1],
        messages.Update(9, 5, GRID, SCALE, 5, *GRIDDED, 0.5, 10, False, None, 65500, 1),
    ),
    "update-moments": (
        [UPDATE, 9, 5, 5, *GRIDDED, -16, 10, 65500, GRID, SCALE, None, True, None, MOMENTS],
        messages.Update(9, 5, GRID, SCALE, 5, *GRIDDED, 0.5, 10, True, None, 65500, None, MOMENTS),
    ),
    "update-labels": (
        [UPDATE, 9, 5, 5, *GRIDDED, -16, 10, 65500, GRID, SCALE, None, True, None, b"", OWN_LABELS],
        messages.Update(9, 5, GRID, SCALE, 5, *GRIDDED, 0.5, 10, True, None, 65500, None, b"", OWN_LABELS),
    ),
    "receipt-labels": (
        [RECEIPT, 8, 4, None, b"", FLEET_LABELS],
        messages.Receipt(8, 4, None, b"", FLEET_LABELS),
    ),
    "receipt-moments": ([RECEIPT, 8, 4, None, MOMENTS], messages.Receipt(8, 4, None, MOMENTS)),
    "task": ([TASK, 1], messages.Task(1)),
    "task-none": ([TASK, None, False], messages.Task(None, counted=False)),
    "over": ([OVER, 6], messages.Over(6)),
    "secure-sum": (
        [SECURE_SUM, 5, bytes(range(32)), b"dead peers"],
        messages.SecureSum(5, bytes(range(32)), b"dead peers"),
    ),
    "stop": ([STOP, "the run has its 100 updates"], messages.Stop("the run has its 100 updates")),
}

RECORDS["welcome-secret"] = (
    [*RECORDS["welcome"][0], None, bytes(range(16))],
    replace(cast(messages.Welcome, RECORDS["welcome"][1]), secret=bytes(range(16))),
)
RECORDS["welcome-tasks"] = (
    [*RECORDS["welcome-secret"][0], True],
    replace(cast(messages.Welcome, RECORDS["welcome-secret"][1]), tasks=True),
)
RECORDS["welcome-input"] = (
    [*RECORDS["welcome-secret"][0], False, None, False, 0.0, 0, 0.0, [9]],
    replace(cast(messages.Welcome, RECORDS["welcome-secret"][1]), input=(9,)),
)
RECORDS["welcome-local"] = (
    [*RECORDS["welcome-secret"][0], False, None, False, 0.0, 0, 0.0, None, True, 0.125],
    replace(cast(messages.Welcome, RECORDS["welcome-secret"][1]), adam=True, proximal=0.125),
)
RECORDS["welcome-adafactor"] = (
    [*RECORDS["welcome-local"][0][:-2], False, 0.0, b"", None, None, 0.75],
    replace(cast(messages.Welcome, RECORDS["welcome-secret"][1]), adafactor=0.75),
)
TOLD = bytes.fromhex(
    "9381a26c72cb3fb999999999999a3293" "92a177a33c6634" "94a16ea37c753190c40107" "92a162a33c6638"
)  # fmt: skip
RECORDS["welcome-app"] = (
    [*RECORDS["welcome-secret"][0], False, None, False, 0.0, 0, 0.0, None, False, 0.0, TOLD],
    replace(cast(messages.Welcome, RECORDS["welcome-secret"][1]), app=TOLD),
)
RECORDS["welcome-data"] = (
    [
        *RECORDS["welcome-input"][0][:-1],
        [2],
        False,
        0.0,
        b"",
        [["a", "b"], [0.5, 2.0], [1.0, 0.25], ["cat", "dog"], False],
    ],
    replace(
        cast(messages.Welcome, RECORDS["welcome-secret"][1]),
        input=(2,),
        data=Description(("a", "b"), (0.5, 2.0), (1.0, 0.25), ("cat", "dog")),
    ),
)

RECORDS["welcome-target"] = (
    [
        *RECORDS["welcome-input"][0][:-1],
        [3],
        False,
        0.0,
        b"",
        [["a", "b"], [0.5, 0.0], [0.25, 1.0], [], True, [21.5, 0.5], [[], ["off", "on"]]],
        [40, 2, bytes(range(8))],
    ],
    replace(
        cast(messages.Welcome, RECORDS["welcome-secret"][1]),
        input=(3,),
        data=Description(("a", "b"), (0.5, 0.0), (0.25, 1.0), (), True, (21.5, 0.5), ((), ("off", "on"))),
        held_out=Sketch(40, 2, bytes(range(8))),
    ),
)


def test_every_example_is_checked_here() -> None:
    assert set(EXAMPLES) == {
        *RECORDS, *NUMBERS, "frame", "raw", "golomb", "runs", "grid", "grid-after",
        "layout", "digest", "layout-statistics", "statistics", "first-words", "first-values", "weights",
        "eighths", "join-key", "join-words", "join-proof", "session-words", "session-proof",
    }  # fmt: skip


@pytest.mark.parametrize("name", RECORDS)
def test_record(name: str) -> None:
    array, record = RECORDS[name]
    assert pack(array) == wire.encode(record) == EXAMPLES[name]
    assert msgpack.unpackb(EXAMPLES[name]) == array
    assert wire.decode(EXAMPLES[name]) == record


@pytest.mark.parametrize("name", NUMBERS)
def test_value_stream(name: str) -> None:
    mode, numbers = NUMBERS[name]
    octets, counts = EXAMPLES[name], TINY_LAYOUT.counts(np.array(WHERE))
    assert values.CODINGS[name].mode == mode
    assert encode_values(mode, numbers, shares(TINY, WHERE), LEVELS) == octets
    assert decode_values(mode, octets, shares(TINY, WHERE)) == numbers
    assert values.decode(octets, counts, mode).tolist() == numbers
    if mode != CODEBOOK4:  # whose levels are the sender's choice
        assert values.encode(np.array(numbers, np.float32), counts, name) == octets


def test_index_streams() -> None:
    where = np.array(WHERE)
    assert golomb_encode(WHERE, 5) == sparse.encode(where, 40, GOLOMB) == EXAMPLES["golomb"]
    assert struct.pack("<5I", *WHERE) == sparse.encode(where, 40, RAW) == EXAMPLES["raw"]
    assert sparse.encode(where, 40, sparse.RUNS) == EXAMPLES["runs"]
    assert sparse.decode(EXAMPLES["runs"], 5, 40, sparse.RUNS).tolist() == WHERE
    for mode, octets in ((GOLOMB, EXAMPLES["golomb"]), (RAW, EXAMPLES["raw"])):
        assert decode_indices(mode, octets, 5, 40) == sparse.decode(octets, 5, 40, mode).tolist() == WHERE


def test_golomb_stream_decoded_by_hand() -> None:
    rows = re.findall(
        r"^\| \d \| ([01]+) \| ([01-]) \| (\d) \| ([01]+) \| (\d) \| (\d+) \| (\d+) \|$", DOCUMENT, re.M
    )
    steps = [tuple(str(part) for part in step) for step in golomb_steps(EXAMPLES["golomb"], 5)]
    assert rows == steps


def test_grid_stream_and_its_decisions() -> None:
    entries = dict(zip(WHERE, [False, True, False, True, True], strict=True))
    writer = Grid(TINY)
    writer.update(5, entries)
    assert writer.end() == EXAMPLES["grid"]
    listed = re.findall(r"```text grid-decisions\n(.*?)```", DOCUMENT, re.DOTALL)
    assert re.findall(r"(\d+):([01])", listed[0]) == [(str(c), str(bit)) for c, bit in writer.decisions]
    assert grid_decode(TINY, EXAMPLES["grid"], 5) == entries
    where, negative = grid.decode(EXAMPLES["grid"], 5, TINY_LAYOUT)
    assert (where.tolist(), negative.tolist()) == (WHERE, list(entries.values()))
    assert grid.encode(where, negative, TINY_LAYOUT) == EXAMPLES["grid"]


def test_grid_stream_after_activity_and_its_decisions() -> None:
    entries = {k: number < 0 for k, number in zip(*ADDED_AGAIN, strict=True)}
    writer = Grid(TINY, None, ACTIVE)
    writer.update(4, entries)
    assert writer.end() == EXAMPLES["grid-after"]
    listed = re.findall(r"```text grid-after-decisions\n(.*?)```", DOCUMENT, re.DOTALL)
    assert re.findall(r"(\d+):([01])", listed[0]) == [(str(c), str(bit)) for c, bit in writer.decisions]
    known = activity.follow(activity.initial(TINY_LAYOUT), np.array(WHERE), TINY_LAYOUT)
    where, negative = grid.decode(EXAMPLES["grid-after"], 4, TINY_LAYOUT, known)
    assert dict(zip(where.tolist(), negative.tolist(), strict=True)) == entries
    assert grid.encode(where, negative, TINY_LAYOUT, known) == EXAMPLES["grid-after"]
    without = re.search(r"without activity: ([0-9a-f ]+)", DOCUMENT)
    assert without is not None
    assert grid_encode(TINY, entries) == bytes.fromhex(without[1])


def test_the_foreign_grid_agrees_with_ours_on_random_updates() -> None:
    """Crowded and scattered entries, in some tensors, in all, and in none, each after those before."""
    random = np.random.default_rng(5)
    passed = 0
    for shapes in ([(12, 30), (12,), (3, 12), (3,)], [(0, 4), (), (5, 2, 3, 3), (1, 40)], [(7, 9)]):
        layout = Layout.from_shapes((str(t), shape) for t, shape in enumerate(shapes))
        theirs, known = inactive(layout.shapes()), activity.initial(layout)
        for share in (0.02, 0.1, 0.4, 1.0):
            rows, columns = random.random(layout.size) < share, np.arange(layout.size) % 6 < 2
            for chosen in (rows, rows & columns, rows & False):
                where = np.flatnonzero(chosen)
                negative = random.random(where.size) < share
                entries = dict(zip(where.tolist(), negative.tolist(), strict=True))
                octets = grid_encode(layout.shapes(), entries, theirs)
                ours = grid.encode(where, negative, layout, known)
                assert ours == (octets if where.size <= 8 * len(octets) else None)
                if ours is not None:
                    passed += 1
                    assert grid_decode(layout.shapes(), octets, where.size, theirs) == entries
                    back = grid.decode(octets, where.size, layout, known)
                    assert [part.tolist() for part in back] == [where.tolist(), negative.tolist()]
                if where.size:
                    theirs = active(theirs, layout.shapes(), where.tolist())
                    known = activity.follow(known, where, layout)
                    assert known.tolist() == [number for lines in theirs for line in lines for number in line]
    assert passed > 20


@pytest.mark.parametrize("name", values.CODINGS)
def test_foreign_codecs_agree_with_ours_on_random_updates(name: str) -> None:
    random = np.random.default_rng(3)
    for parameter in (1, 2, 3, 5, 8, 300):
        where = np.sort(random.choice(LAYOUT.size, 30, replace=False))
        octets = golomb_encode(where.tolist(), parameter)
        assert sparse.decode(octets, 30, LAYOUT.size, GOLOMB).tolist() == where.tolist()
        assert golomb_decode(sparse.encode(where, LAYOUT.size), 30) == where.tolist()
        numbers = random.standard_normal(30).astype(np.float32)
        octets = values.encode(numbers, LAYOUT.counts(where), name)
        mode, counts = values.CODINGS[name].mode, shares(LAYOUT.shapes(), where.tolist())
        ours = values.decode(octets, LAYOUT.counts(where), mode)
        assert decode_values(mode, octets, counts) == ours.tolist()


def test_changes_are_added_and_held_stands_for_them() -> None:
    """By the client and by ours: the numbers of the document, one record after the other."""
    copy, replica = Copy(TINY), Replica(TINY_LAYOUT)
    assert crc(b"123456789", 0) == 0xCBF43926
    chains = re.findall(r"\| 0x(\w{8}) \| (\d+) \|$", DOCUMENT, re.M)
    names = ("model-whole", "model-changes", "model-changes-none", "model-changes-again")
    for name, (chain, held) in zip(names, chains[:4], strict=True):
        array = msgpack.unpackb(EXAMPLES[name])
        before = list(copy.theta)
        copy.take(array)
        replica.take(model_record(array))
        assert (f"{copy.chain:08x}", str(copy.held), replica.held) == (chain, held, copy.held)
        assert bits(copy.theta) == replica.theta.tobytes()
        if name == "model-whole":
            assert copy.theta[3] == 3 * 0.0625
            assert copy.theta[36:] == [127 / 128, 0, -127 / 128, 1 / 128]
        elif name == "model-changes":
            added = {
                k: now - then
                for k, (now, then) in enumerate(zip(copy.theta, before, strict=True))
                if now != then
            }
            assert added == dict(zip(*ADDED, strict=True))
    begun = Copy(TINY)
    begun.theta, begun.version = first_model(TINY, FIRST), 4
    begun.take(msgpack.unpackb(EXAMPLES["model-changes"]))
    assert (f"{begun.chain:08x}", str(begun.held)) == chains[4]
    begun.take([MODEL, 6, 1, 2, *CHANGED, False, GOLOMB, F32])
    assert begun.held == 0


def test_running_statistics_behind_changes() -> None:
    layout: list[Any] = [*TINY, ["running_mean", [2], True], ["running_var", [2], True]]
    copy, replica = Copy(layout), Replica(Layout.from_shapes(layout))
    whole = [MODEL, 4, None, 44, b"", bits([1.0] * 44), False, DENSE, F32]
    for array in (whole, msgpack.unpackb(EXAMPLES["model-changes-statistics"])):
        copy.take(array)
        replica.take(model_record(array))
    assert copy.theta[40:] == [0.5, -0.25, 1, 2]
    assert copy.theta[3] == 1.5
    assert bits(copy.theta) == replica.theta.tobytes()
    assert copy.held == replica.held


def test_powers_of_an_eighth() -> None:
    eighths = struct.unpack("<8f", EXAMPLES["eighths"])
    steps = values.decode(bytes(range(1, 256)), np.ones(255, np.int64), SCALE)
    assert steps.tolist() == [math.ldexp(eighths[e % 8], (e - 192) // 8) for e in range(1, 256)]


def test_second_moments() -> None:
    means = [0.125, 0.5, 0.25, 0.25, 0.25, 0, *[0.25] * 12]
    assert moments.decode(MOMENTS, TINY_LAYOUT).tolist() == means
    levels = bytes(128 + round(math.log2(mean)) if mean else 0 for mean in means)
    assert zlib.decompress(MOMENTS) == levels
    assert zlib.decompress(moments.encode(np.array(means, np.float32))) == levels


def test_layout_and_frame() -> None:
    assert pack(TINY) == EXAMPLES["layout"]
    assert DIGEST == TINY_LAYOUT.digest == EXAMPLES["digest"]
    assert frame(EXAMPLES["pull"]) == EXAMPLES["frame"]
    update = frame(EXAMPLES["update"])
    assert (len(EXAMPLES["update"]), len(update)) == (43, 49), "as the document says"
    assert len(update) == wire.framed_size(43, masked=True)
    streams = len(GRIDDED[0]) + len(GRIDDED[1])
    assert len(EXAMPLES["update-held"]) == 14 + streams, "as the document says"
    assert len(EXAMPLES["update-smallest"]) == 14 + 2
    assert len(EXAMPLES["receipt-held"]) == 12 + streams
    assert len(EXAMPLES["receipt-smallest"]) == 7


def test_the_first_model() -> None:
    words = random_words(7, 0, 2) + random_words(7, 1, 3)
    assert struct.pack(">5Q", *words) == EXAMPLES["first-words"]
    theta = first_model(TINY, FIRST)
    assert bits([theta[0], theta[1], theta[36]]) == EXAMPLES["first-values"]
    assert bits(theta) == generate(Start.from_msgpack(FIRST), TINY_LAYOUT).tobytes()
    for text in ("14630964 / 2^24", "s = 408628, z = 15418 / 65536", "0.15405506", "0.242630005"):
        assert text in DOCUMENT
    assert (words[0] >> 40, 408628 - 393210) == (14630964, 15418)
    assert (f32(0.15405506), f32(0.242630005)) == (theta[0], theta[36])


def test_packed_weights() -> None:
    numbers = [0.5] * 36 + [0.25, 0.5, 0.75, -1]
    assert decode_values(F32, unpacked(EXAMPLES["weights"], F32), [40]) == numbers
    assert packed.unpack(EXAMPLES["weights"], F32, 160) == bits(numbers)
    halves = packed.pack(struct.pack("<40e", *numbers), F16)
    assert decode_values(F16, unpacked(halves, F16), [40]) == numbers
    assert unpacked(packed.pack(WHOLE, INT8), INT8) == WHOLE


def test_running_statistics() -> None:
    statistics = [("running_mean", (2,), True), ("running_var", (2,), True)]
    layout = Layout.from_shapes([("w", (9, 4)), ("b", (4,)), *statistics])
    assert pack([*TINY, *statistics]) == pack(layout.shapes()) == EXAMPLES["layout-statistics"]
    assert layout.digest == hashlib.sha256(EXAMPLES["layout-statistics"]).digest()[:16]
    numbers = [0.5, -0.25, 1, 2]
    assert struct.pack("<4e", *numbers) == EXAMPLES["statistics"]
    assert values.encode_statistics(np.array(numbers, np.float32)) == EXAMPLES["statistics"]
    assert values.decode_statistics(EXAMPLES["statistics"]).tolist() == numbers


def test_records_in_the_document_are_those_of_the_code() -> None:
    """Tags, fields and their order."""
    documented = {}
    for section in re.split(r"^#+ ", DOCUMENT, flags=re.M):
        title = re.match(r"(\d+) (\w+) \(", section)
        if title:
            rows = re.findall(r"^\| \d+ \| (\w+) \|", section, re.M)
            documented[title[2]] = (int(title[1]), tuple(rows))
    assert documented == {kind.__name__: (tag, messages.ORDER[kind]) for kind, tag in messages.TAGS.items()}


def test_what_is_left_out_of_records_is_what_the_document_says() -> None:
    """A field is optional in the document if it has a usual value in the code."""
    for section in re.split(r"^#+ ", DOCUMENT, flags=re.M):
        if title := re.match(r"(\d+) (\w+) \(", section):
            rows = re.findall(r"^\| \d+ \| \w+ \| [^|]* \|(.*)\|$", section, re.M)
            (kind,) = (kind for kind in messages.TAGS if kind.__name__ == title[2])
            usual = [row.lstrip().startswith("optional, ") for row in rows]
            assert sum(usual) == len(messages.USUAL[kind]), title[2]
            assert usual == sorted(usual), title[2]


def test_what_apps_are_told() -> None:
    contents: dict[str, np.ndarray] = {
        "w": np.zeros((9, 4), np.float32),
        "n": np.array(7, np.uint8),
        "b": np.zeros(4),
    }
    arrays = app.Arrays.from_arrays(contents, ())
    assert app.encode(app.App({"lr": 0.1}, 50, arrays)) == TOLD
    known = app.decode(TOLD, TINY_LAYOUT)
    assert (known.config, known.evaluate, list(known.arrays.kinds)) == ({"lr": 0.1}, 50, ["w", "n", "b"])
    theta = np.arange(40, dtype=np.float32)
    apart = known.arrays.split(theta)
    assert [(array.dtype.str, array.shape) for array in apart.values()] == [
        ("<f4", (9, 4)),
        ("|u1", ()),
        ("<f8", (4,)),
    ]
    assert apart["n"] == 7
    assert (known.arrays.flatten(apart) == theta).all()


def test_levels_of_losses() -> None:
    rows = re.findall(r"^\| (\S+) \| (-?\d+) \| (\d) \|$", DOCUMENT, re.M)
    assert len(rows) == 5
    for loss, level, octets in rows:
        assert wire.level(float(loss)) == int(level)
        assert len(pack([int(level)])) == 1 + int(octets)


def test_errors_in_the_document_are_those_that_reach_a_device() -> None:
    """All but the inner nodes of the tree and RunComplete, which travels as a Stop."""
    section = DOCUMENT.partition("\n## Errors\n")[2].partition("\n## ")[0]
    documented = dict(re.findall(r"^\| `([a-z0-9-]+)` \| (?:(\d+) )?\|", section, re.M))
    leaves = [kind for kind in REFUSALS.values() if not kind.__subclasses__() and kind is not RunComplete]
    closes = {kind.code: str(4000 + kind.status) for kind in leaves if issubclass(kind, SessionRefused)}
    closes |= {"unauthorized": "401", "forbidden": "403"}
    assert documented == {kind.code: closes.get(kind.code, "") for kind in leaves}


# The client against the server


def update(
    sequence: int, base: int, modes: tuple[int, int], where: list[int], pull: bool = False
) -> list[Any]:
    """An update with a made-up gradient, coded by the foreign client."""
    layout = LAYOUT.shapes()
    numbers = [f32(math.sin(sequence + 7 * k)) for k in where]
    indices = {
        DENSE: b"",
        RAW: struct.pack(f"<{len(where)}I", *where),
        GOLOMB: golomb_encode(where, 6),
        GRID: grid_encode(layout, {k: number < 0 for k, number in zip(where, numbers, strict=True)}),
    }[modes[0]]
    octets = encode_values(modes[1], numbers, shares(layout, where), LEVELS)
    return [UPDATE, sequence, base, len(where), indices, octets, -16, 10, 0, *modes, None, pull]


def model_record(model: list[Any]) -> messages.Model:
    record = wire.decode(pack(model))
    assert isinstance(record, messages.Model)
    return record


def with_statistics(question: list[Any], statistics: Sequence[float]) -> list[Any]:
    """The same update of a model with running statistics."""
    octets = question[5] + struct.pack(f"<{len(statistics)}e", *statistics)
    return [*question[:5], octets, *question[6:]]


def bits(numbers: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


EVERY = list(range(LAYOUT.size))
SOME = [0, 4, 39, 40, 48, 49, 108, 109, 118]
SCRIPT = [
    ((RAW, F32), SOME),
    ((GOLOMB, CODEBOOK4), [4, 5, 47, 48, 60, 118]),
    ((GOLOMB, SIGN), SOME),
    ((RAW, INT8), [2, 4, 48, 110]),
    ((DENSE, F16), EVERY),
    ((GOLOMB, F16), [0, 118]),
    ((GRID, SCALE), SOME),
    ((DENSE, SIGN), EVERY),
    ((GRID, SCALE), [4, 48, 53, 54]),
    ((GOLOMB, INT8), []),
]


@pytest.mark.parametrize(("rule", "lag"), [("adacomp", 0), ("adacomp", 3), ("tau", 2), ("none", 3)])
async def test_server_computes_what_the_document_says(rule: str, lag: int, tmp_path: Path) -> None:
    """Every coding, fresh and computed from a version `lag` versions old: float32 for float32 the same."""
    settings = ["coordination.learning_rate=0.3", f"coordination.rule={rule}"]
    async with hosting(tmp_path, *settings) as server:
        async with joined(server.port, "pi") as (device, welcome):
            assert welcome[1:3] == [2, RUN]
            assert welcome[7:9] == [0, 0]
            copy = Copy(welcome[5])
            copy.take(await device.ask([PULL, None]))
            assert bits(copy.theta) == initial_theta(LAYOUT.size).tobytes()
            for sequence, (modes, where) in enumerate(SCRIPT, 1):
                question = update(sequence, max(0, copy.version - lag), modes, where)
                assert await device.ask(question) == [RECEIPT, sequence, sequence]
                copy.descend(question, 0.3, rule)
                whole = await device.ask([PULL, None])
                assert whole[1:4] == [sequence, None, LAYOUT.size]
                assert whole[5:] == [bits(copy.theta), False, DENSE, F32], modes
        digest = hashlib.sha256(pack(welcome[5])).digest()[:16]
        async with joined(server.port, "pi", digest) as (_, again):
            assert again[2] == RUN
            assert again[7:9] == [len(SCRIPT), len(SCRIPT)]


async def test_a_device_makes_the_first_model_and_pulls_what_has_changed(tmp_path: Path) -> None:
    """Tensors of each kind, running statistics among them: float32 for float32 the server's."""
    shapes: list[Any] = [*LAYOUT.shapes(), ["mean", [3], True], ["variance", [3], True]]
    layout = Layout.from_shapes(shapes)
    kinds = [Filling(UNIFORM, -0.375, 0.25), Filling(NORMAL, 0.125, 0.75)] * len(shapes)
    start = Start(1 << 40, (*kinds[: len(shapes) - 1], Filling(CONSTANT, 1.0, 0.0)))
    async with (
        hosting(tmp_path, "coordination.learning_rate=0.3", layout=layout, start=start) as server,
        joined(server.port, "pi") as (device, welcome),
        joined(server.port, "jetson") as (other, _),
    ):
        assert welcome[6] == [1 << 40, [list(filling) for filling in start.tensors]]
        copy, whole = Copy(welcome[5]), Copy(welcome[5])
        whole.take(await device.ask([PULL, None]))
        copy.theta, copy.version = first_model(welcome[5], welcome[6]), 0
        assert bits(copy.theta) == bits(whole.theta)
        assert await device.ask([PULL, 0]) == [MODEL, 0, 0]
        question = with_statistics(update(1, 0, (RAW, F32), [4, 9]), [0.5] * 6)
        assert (await other.ask(question))[0] == RECEIPT
        model = await device.ask([PULL, 0])
        assert model[:4] == [MODEL, 1, 1, 2 + 6], "a difference"
        copy.take(model)
        whole.descend(question, 0.3)
        assert bits(copy.theta) == bits(whole.theta)


@pytest.mark.parametrize("mode", ["downlink.mode=exact", LOSSY])
async def test_a_device_loads_weights_and_takes_part(mode: str, tmp_path: Path) -> None:
    """In two parts; then a difference to them, which the server knows to be held."""
    layout = Layout.from_shapes([("w", (60, 50)), ("b", (50,))])
    async with (
        hosting(tmp_path, "coordination.learning_rate=0.3", mode, layout=layout, offered=True) as server,
        joined(server.port, "pi") as (device, welcome),
        joined(server.port, "jetson") as (other, _),
    ):
        assert welcome[6] is None
        digest, size, value_mode, worth = welcome[21]
        assert worth
        first = (await load(server.port, "pi"))[2][:1000]
        status, etag, rest = await load(server.port, "pi", have=1000, digest=digest.hex())
        assert (status, etag) == (206, digest.hex())
        file = first + rest
        assert (len(file), hashlib.sha256(file).digest()) == (size, digest)
        copy = Copy(welcome[5])
        stream = unpacked(file, value_mode)
        copy.take([MODEL, 0, None, layout.size, b"", stream, value_mode != F32, DENSE, value_mode])
        assert (copy.held == 0) == (mode != LOSSY)
        where = list(range(0, 500, 7))
        octets = struct.pack(f"<{len(where)}f", *(9.0 for _ in where))
        indices = struct.pack(f"<{len(where)}I", *where)
        question = [UPDATE, 1, 0, len(where), indices, octets, -16, 10, 0, RAW, F32, None, False]
        assert (await other.ask(question))[0] == RECEIPT
        model = await device.ask([PULL, 0, copy.held])
        assert model[2] == 1, "a difference"
        copy.take(model)
        theta = server.engine.theta()[1]
        if mode == LOSSY:
            there = believed(server.engine, 1, copy.version, copy.held)
            assert there is not None
            assert there.tobytes() == bits(copy.theta)
            assert np.abs(there - theta).max() < 2.7, "it was told of the most of it"
        else:
            assert bits(copy.theta) == theta.tobytes()


@pytest.mark.parametrize("lag", [0, 13])
async def test_running_statistics_go_where_the_document_says(lag: int, tmp_path: Path) -> None:
    """Every coding twice over, with the statistics of a batch; the model whole and as a difference."""
    layout = [*LAYOUT.shapes(), ["mean", [3], True], ["variance", [3], True]]
    async with (
        hosting(tmp_path, "coordination.learning_rate=0.3", layout=Layout.from_shapes(layout)) as server,  # type: ignore[arg-type]
        joined(server.port, "pi") as (device, welcome),
    ):
        assert welcome[5] == layout
        copy, other = Copy(welcome[5]), Copy(welcome[5])
        for each in (copy, other):
            each.take(await device.ask([PULL, None]))
        differences = 0
        for sequence, (modes, where) in enumerate(SCRIPT * 2, 1):
            plain = update(sequence, max(0, copy.version - lag), modes, where)
            assert (await device.ask(plain))[:2] == [REFUSAL, "wrong-dtype"]
            question = with_statistics(plain, [math.sin(sequence + k) * 3**k for k in range(6)])
            assert await device.ask(question) == [RECEIPT, sequence, sequence]
            copy.descend(question, 0.3)
            model = await device.ask([PULL, other.version])
            differences += model[2] is not None
            other.take(model)
            assert bits(other.theta) == bits(copy.theta), modes
        assert differences > 5
        digest = hashlib.sha256(pack(layout)).digest()[:16]
        async with joined(server.port, "jetson", digest):
            pass


CODED = {
    "as it is": [],
    "other codings": ["downlink.values=codebook4", "downlink.select=0.1"],
    "half precision": ["downlink.values=f16", "downlink.select=0.3"],
}


@pytest.mark.parametrize("normed", [False, True], ids=["parameters only", "running statistics"])
@pytest.mark.parametrize("settings", CODED.values(), ids=CODED.keys())
async def test_a_lossy_run(settings: list[str], normed: bool, tmp_path: Path) -> None:
    """Two devices, one of which makes the first model: the server knows what they hold, bit for bit."""
    shapes: list[Any] = LAYOUT.shapes()
    if normed:
        shapes += [["mean", [3], True], ["variance", [3], True]]
    layout = Layout.from_shapes(shapes)
    start = Start(3, tuple(Filling(NORMAL, 0.0, 0.5) for _ in shapes))
    lossy = ["coordination.learning_rate=0.3", LOSSY, *settings]
    wholes = statistics = 0
    async with (
        hosting(tmp_path, *lossy, layout=layout, start=start) as server,
        joined(server.port, "pi") as (pi, welcome),
        joined(server.port, "jetson") as (jetson, _),
    ):
        copies = [Copy(welcome[5]), Copy(welcome[5])]
        copies[0].theta, copies[0].version = first_model(*welcome[5:7]), 0
        copies[0].take(await pi.ask([PULL, 0]))
        copies[1].take(await jetson.ask([PULL, None]))
        for turn in range(40):
            for number, (device, copy) in enumerate(zip((pi, jetson), copies, strict=True), 1):
                question = update(turn + 1, copy.version, *SCRIPT[turn % len(SCRIPT)], pull=True)
                if normed:
                    question = with_statistics(question, [math.sin(turn + 7 * k) for k in range(6)])
                question[8] = copy.held
                if turn % 7 == 6:  # the answer is lost, and it asks again
                    assert (await device.ask(question))[0] == RECEIPT
                receipt = await device.ask(question)
                assert receipt[1] == turn + 1
                model = model_of(receipt)
                before = copy.theta[copy.parameters :]
                copy.take(model)
                wholes += model[2] is None
                statistics += copy.theta[copy.parameters :] != before
                there = believed(server.engine, number, copy.version, copy.held)
                assert there is not None
                assert there.tobytes() == bits(copy.theta[: copy.parameters])
    assert wholes == 0, "but for the one that was asked for"
    assert statistics == (4 if normed else 0)


async def test_differences_carry_new_values(tmp_path: Path) -> None:
    async with (
        hosting(tmp_path, "coordination.learning_rate=0.3") as server,
        joined(server.port, "pi") as (device, welcome),
        joined(server.port, "jetson") as (other, _),
    ):
        copy, expected = Copy(welcome[5]), Copy(welcome[5])
        for each in (copy, expected):
            each.take(await device.ask([PULL, None]))
        question = update(1, 0, (GOLOMB, CODEBOOK4), [4, 48, 110], pull=True)
        receipt = await device.ask(question)
        assert receipt[:3] == [RECEIPT, 1, 1]
        model = model_of(receipt)
        assert model[:3] == [MODEL, 1, 1]
        assert model[6:] == [False, GOLOMB, F32], "a difference"
        copy.take(model)
        expected.descend(question, 0.3)
        assert bits(copy.theta) == bits(expected.theta)

        for question in (update(5, 1, (RAW, F32), [4, 9]), update(6, 1, (RAW, SIGN), [9, 49, 118])):
            await other.ask(question)
            expected.descend(question, 0.3)
        model = await device.ask([PULL, 1])
        assert model[:4] == [MODEL, 3, 2, 4], "the union of both"
        copy.take(model)
        assert bits(copy.theta) == bits(expected.theta)
        assert await device.ask([PULL, 3]) == [MODEL, 3, 0]


async def test_the_welcome_says_what_a_sample_looks_like(tmp_path: Path) -> None:
    """If the server knows."""
    for settings, known in (((), None), (("model.input=3,8,8",), [3, 8, 8])):
        async with hosting(tmp_path / f"{len(settings)}", *settings) as server:
            async with joined(server.port, "pi") as (_, welcome):
                assert input_of(welcome) == known


async def test_a_resend_gets_the_same_receipt(tmp_path: Path) -> None:
    async with hosting(tmp_path) as server:
        question = update(3, 0, (RAW, F32), SOME)
        async with joined(server.port, "pi") as (device, _):
            receipt = await device.ask(question)
            assert receipt == [RECEIPT, 3, 1]
            assert (await device.ask(update(8, 1, (GOLOMB, SIGN), SOME)))[1:3] == [8, 2]
            before = server.engine.theta()[1].tobytes()
            assert await device.ask(question) == receipt
        async with joined(server.port, "pi") as (device, welcome):
            assert welcome[8] == 8
            assert await device.ask(question) == receipt
            receipt = await device.ask([*question[:-1], True])
            assert (receipt[2], model_of(receipt)[1]) == (1, 2), "the receipt of then, the model of now"
        async with joined(server.port, "jetson") as (other, _):
            assert await other.ask(question) == [RECEIPT, 3, 3], "numbers count for each device"
        assert server.engine.published.version == 3
        assert server.engine.receipts.last_sequence(1) == 8
        assert before != server.engine.theta()[1].tobytes()


async def test_a_complete_run_says_stop(tmp_path: Path) -> None:
    async with hosting(tmp_path, "end.updates=1") as server, joined(server.port, "pi") as (device, _):
        first = update(1, 0, (RAW, F32), SOME)
        assert (await device.ask(first))[0] == RECEIPT
        assert (await device.ask(update(2, 1, (RAW, F32), SOME)))[0] == STOP
        assert await device.ask(first) == [RECEIPT, 1, 1]
        assert (await device.ask([PULL, None]))[:2] == [MODEL, 1]


async def test_a_newer_session_supersedes_the_older(tmp_path: Path) -> None:
    async with hosting(tmp_path) as server, joined(server.port, "pi") as (older, welcome):
        # The Welcome waits for the older one's answer to its close frame.
        closed = asyncio.create_task(older.closed())
        secret = welcome[22]
        assert len(secret) == 16
        async with joined(server.port, "pi", secret=secret) as (newer, again):
            assert await closed == (4409, "superseded")
            assert again[22] == secret
            assert (await newer.ask([PULL, None]))[0] == MODEL


async def test_devices_are_told_that_the_server_stops(tmp_path: Path) -> None:
    async with hosting(tmp_path) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        device = Device(reader, writer)
        await device.upgrade()
        assert (await device.ask([HELLO, 2, "pi", b"", {}]))[0] == WELCOME
        closed = asyncio.create_task(device.closed())
    assert (await closed)[0] == 1001
    writer.close()


# Joining


def test_what_a_device_signs_is_as_the_document_says() -> None:
    key, token = bytes(range(32)), "ef1.AAECAwQFBgcICQoLDA0ODxAREhMUFRYX."
    assert public_key(key) == EXAMPLES["join-key"] == identity.public_of(key)
    joining, session = EXAMPLES["join-words"], EXAMPLES["session-words"]
    challenge, realm = bytes(range(32, 64)), bytes(range(16))
    assert joining == words_of_joining(token, key, "pi-7")
    assert joining == identity.join_message(token, identity.NO_PIN, identity.public_of(key), "pi-7")
    assert session == words_of_session(challenge, realm, "pi-7")
    assert session == identity.session_message(challenge, realm, identity.NO_PIN, "pi-7")
    for words, proof in ((joining, EXAMPLES["join-proof"]), (session, EXAMPLES["session-proof"])):
        assert signature(key, words) == proof == identity.sign(key, words)


async def test_the_foreign_client_joins_and_proves_its_key(tmp_path: Path) -> None:
    key, other = bytes(range(32)), bytes(range(1, 33))
    async with hosting(tmp_path, closed=True) as server:
        token = server.register.create("device").text
        credential, realm = await join(server.port, token, "pi-7", key)
        async with proved(server.port, "pi-7", key, credential, realm) as (_, answer):
            assert answer[0] == WELCOME
        for name, proving in (("pi-8", key), ("pi-7", other)):
            async with proved(server.port, name, proving, credential, realm) as (device, answer):
                assert answer[:2] == [REFUSAL, "unauthorized"]
                assert await device.closed() == (4401, "unauthorized")
        on_renewed, _ = await join(server.port, credential, "pi-7", other, before=key)
        async with proved(server.port, "pi-7", other, on_renewed, realm) as (_, answer):
            assert answer[0] == WELCOME
        async with connected(server.port) as device:
            assert (await device.upgrade(credential))[0] == 401
