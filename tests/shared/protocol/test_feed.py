"""What watchers are told: what is written comes back, and what is not known is refused."""

from dataclasses import replace
from typing import Any, get_args

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.shared.errors import Malformed
from edgeflock.shared.protocol import feed, frames
from edgeflock.shared.protocol.frames import (
    BINS,
    COLUMNS,
    Delta,
    DeviceRow,
    Evaluation,
    Event,
    Finding,
    Overview,
    Point,
    RunFacts,
    Snapshot,
)

counts = st.integers(0, 1 << 40)
numbers = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=12)
rows = st.builds(
    DeviceRow,
    counts,
    texts,
    st.sampled_from(get_args(frames.DeviceState)),
    *(st.none() | strategy for strategy in (texts, texts, numbers, *[counts] * 5)),
    *(st.none() | strategy for strategy in (numbers, numbers, numbers, counts, numbers)),
    *[counts] * 6,
    *[st.none() | numbers] * 4,
    st.none() | st.booleans(),
    *[st.none() | counts] * 2,
    st.none() | texts,
    *[st.none() | numbers] * 2,
    st.none() | texts,
    st.none() | numbers,
    *[st.none() | counts] * 2,
    st.none() | numbers,
)
metrics = st.dictionaries(texts, st.none() | numbers, max_size=2)
classes = st.lists(st.tuples(counts, counts).map(sorted).map(tuple), max_size=3).map(tuple)
evaluations = st.builds(
    Evaluation, counts, numbers, st.none() | numbers, st.none() | numbers, counts, counts, metrics, classes
)
events = st.builds(Event, numbers, st.sampled_from(get_args(frames.EventKind)), st.none() | texts, texts)
findings = st.builds(
    Finding,
    st.sampled_from(get_args(frames.FindingKind)),
    st.sampled_from(get_args(frames.Severity)),
    st.none() | texts,
    numbers,
    texts,
    texts,
)
rates = st.none() | numbers
gateways = st.builds(frames.GatewayRow, texts, texts, numbers, counts, *[rates] * 3, counts)
overviews = st.builds(
    Overview,
    version=counts,
    staleness=st.lists(counts, min_size=BINS, max_size=BINS),
    state=st.sampled_from(get_args(frames.RunState)),
    reduction=st.none() | numbers,
    loss=st.none() | numbers,
    cnc=st.none() | numbers,
    **{name: numbers for name in ("updates_per_s", "ingress_rate", "egress_rate")},
    **{name: counts for name in ("ingress", "egress", "dense_bytes", "devices", "up")},
    shared_samples=counts,
    findings=st.lists(findings, max_size=2).map(tuple),
    more_findings=counts,
    began=st.none() | numbers,
    tasks=st.none() | st.builds(frames.TaskRoundStatus, *[counts] * 4),
    gateways=st.lists(gateways, max_size=2).map(tuple),
    shards=st.lists(st.builds(frames.ShardRow, texts, counts), max_size=2).map(tuple),
    restored=counts,
    evaluation_failed=st.booleans(),
)
settings = st.dictionaries(texts, st.dictionaries(texts, texts | counts | st.booleans() | st.none()))
snapshots = st.builds(
    Snapshot,
    numbers,
    st.builds(RunFacts, texts, texts, counts, counts, counts, settings),
    st.sampled_from(get_args(frames.Role)),
    *(st.lists(each, max_size=3).map(tuple) for each in (rows,)),
    overviews,
    *(st.lists(each, max_size=3).map(tuple) for each in (evaluations, events)),
)
deltas = st.builds(
    Delta,
    numbers,
    overviews,
    *(st.lists(each, max_size=3).map(tuple) for each in (rows, evaluations, events)),
    counts,
)


@given(snapshots | deltas)
def test_what_is_encoded_comes_back(frame: Snapshot | Delta) -> None:
    assert feed.decode(feed.encode(frame)) == frame


def test_a_run_without_gateways_and_shards_says_nothing_of_them() -> None:
    told_of = msgpack.unpackb(feed.encode(GOOD))["overview"]
    assert not {"gateways", "shards", "restored"} & told_of.keys()
    more = replace(OVERVIEW, shards=(frames.ShardRow("one", 7),), restored=2)
    told_of = msgpack.unpackb(feed.encode(replace(GOOD, overview=more)))["overview"]
    assert (told_of["shards"], told_of["restored"]) == ([["one", 7]], 2)


PI = DeviceRow(
    *(3, "pi-3", "training", "pi4", "onnx", 8.0, 10, 0, 0, 0, 0, None, None, 1e9),
    *(2, 0.5, 7, 0, 900, 90, 70, 7, 31.5, 212.0),
    *(48.0, None, False, 3, 1, None, 0.4, 1.5, None),
    *(3792.0, 4, 1, 0.25, "site=north", "0.2.0"),
)
OVERVIEW = Overview(
    *(7, 1.0, 900, 90, 90.0, 9.0, 9000, 10.0, [0] * BINS, 1, 1, 1.0, 0.5, False, "training", 0, None),
    findings=(Finding("disagrees", "warning", "pi-3", 1e9, "its updates point away", "look at its labels"),),
    began=1e9,
)
GOOD = Delta(1e9, OVERVIEW, (PI,), (), (Event(1e9, "joined", "pi-3", "joined"),), 0)


def other(**values: Any) -> list[Any]:
    """The row of a device that is not as it should be."""
    return list((dict(zip(DeviceRow._fields, PI, strict=True)) | values).values())


def reported(**entries: Any) -> dict[str, Any]:
    """The overview as it is not."""
    overview: dict[str, Any] = msgpack.unpackb(feed.encode(GOOD))["overview"]
    return overview | entries


def edited(**entries: Any) -> bytes:
    octets: bytes = msgpack.packb(msgpack.unpackb(feed.encode(GOOD)) | entries)
    return octets


@pytest.mark.parametrize(
    ("octets", "complaint"),
    [
        (b"", "msgpack"),
        (feed.encode(GOOD)[:-1], "msgpack"),
        (msgpack.packb([1, 2]), "snapshot or delta"),
        (edited(type="theta"), "not 'theta'"),
        (edited(more=1), "delta has the keys .*, not .*more"),
        (edited(missed_events="2"), "delta.missed_events must be int, not str"),
        (edited(missed_events=True), "delta.missed_events must be int, not bool"),
        (edited(devices=[[1, 2]]), "delta.devices must be rows of 39"),
        (edited(devices=[other(updates=None)]), "delta.devices.updates must be int, not NoneType"),
        (edited(devices=[PI, other(loss=float("nan"))]), "delta.devices.loss must be finite"),
        (edited(devices=[other(state="asleep")]), "delta.devices.state must be one of .*'asleep'"),
        (edited(devices=[other(state=["idle"])]), "delta.devices.state must be one of"),
        (edited(events=[[1.0, "exploded", None, ""]]), "delta.events.kind must be one of .*'exploded'"),
        (
            edited(overview=reported(findings=[["tired", "warning", None, 1.0, "", ""]])),
            "findings.kind must be one of",
        ),
        (edited(overview={}), "delta.overview has the keys"),
    ],
)
def test_what_is_not_known_is_refused(octets: bytes, complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint):
        feed.decode(octets)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ([1, 2.0, 3.0, None, 4], "rows of 6 entries"),
        ([1, 2.0, 3.0, None, 4, 5, {}, [], 6], "rows of 6 to 8 entries"),
        ([1, 2.0, 3.0, None, 4, 5, []], "metrics must map names to numbers"),
        ([1, 2.0, 3.0, None, 4, 5, {b"f1": 1.0}], "metrics must map names to numbers"),
        ([1, 2.0, 3.0, None, 4, 5, {"f1": "0.5"}], "metrics must be float, not str"),
        ([1, 2.0, 3.0, None, 4, 5, {"f1": float("inf")}], "metrics must be finite"),
        ([1, 2.0, 3.0, None, 4, 5, {}, 6], "classes must be 1000 counts at most"),
        ([1, 2.0, 3.0, None, 4, 5, {}, [[0, 1]] * 1001], "classes must be 1000 counts at most"),
        ([1, 2.0, 3.0, None, 4, 5, {}, [[2, 1]]], "of each class"),
        ([1, 2.0, 3.0, None, 4, 5, {}, [[-1, 1]]], "of each class"),
        ([1, 2.0, 3.0, None, 4, 5, {}, [[1.0, 1]]], "of each class"),
        ([1, 2.0, 3.0, None, 4, 5, {}, [[1]]], "of each class"),
        ([1, 2.0, 3.0, None, 4, 5, {}, [3]], "of each class"),
    ],
)
def test_details_behind_an_evaluation(row: list[Any], complaint: str) -> None:
    delta = msgpack.unpackb(feed.encode(GOOD))
    whole = [1, 2.0, 3.0, None, 4, 5]
    sent = [[*whole, {"f1": 0.5}], whole, [*whole, {}, [[3, 4], [0, 5]]]]
    read = feed.decode(msgpack.packb(delta | {"evaluations": sent}))
    assert [dict(one.metrics) for one in read.evaluations] == [{"f1": 0.5}, {}, {}]
    assert [one.classes for one in read.evaluations] == [(), (), ((3, 4), (0, 5))]
    assert msgpack.unpackb(feed.encode(read))["evaluations"] == sent
    with pytest.raises(Malformed, match=complaint):
        feed.decode(msgpack.packb(delta | {"evaluations": [row]}))


def test_other_columns_are_refused() -> None:
    run = RunFacts("5f3c", "zoo:CNN", 10, 10, 0, {"server": {"port": 8470}})
    snapshot = Snapshot(1e9, run, "viewer", (PI,), OVERVIEW, (), ())
    entries = msgpack.unpackb(feed.encode(snapshot))
    assert entries["columns"] == list(COLUMNS)
    with pytest.raises(Malformed, match="columns"):
        feed.decode(msgpack.packb(entries | {"columns": [*COLUMNS[1:], COLUMNS[0]]}))
    with pytest.raises(Malformed, match="columns"):
        feed.decode(msgpack.packb(entries | {"columns": COLUMNS[:-2]}))
    with pytest.raises(Malformed, match="snapshot.run.config"):
        feed.decode(feed.encode(replace(snapshot, run=replace(run, config={"port": 8470}))))


@pytest.mark.parametrize(
    ("tau", "place"), [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1023, 10), (1024, 11), (10**9, 11)]
)
def test_bins_of_staleness_double(tau: int, place: int) -> None:
    assert frames.staleness_bin(tau) == place


def test_a_device_and_its_history_are_read_from_json() -> None:
    device = dict(zip(COLUMNS, PI, strict=True))
    points = [[1e9, 0.5, 2, 900], [1e9 + 1, None, None, 990]]
    assert feed.device_history({"device": device, "history": points}) == (
        PI,
        (Point(1e9, 0.5, 2, 900), Point(1e9 + 1, None, None, 990)),
    )
    missing = {name: value for name, value in device.items() if name != COLUMNS[-1]}
    for wrong in ({}, {"device": device}, *({"device": one, "history": []} for one in ({"id": 1}, missing))):
        with pytest.raises(Malformed):
            feed.device_history(wrong)
