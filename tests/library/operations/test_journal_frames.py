"""A journal as the frames of a feed."""

import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from edgeflock.operations.journal_frames import AWAY_SECONDS, journal_frames
from edgeflock.operations.top import TopOptions, open_recording, sources
from edgeflock.server.descent.regime import Regime
from edgeflock.server.journal.journal import Journal
from edgeflock.shared.codecs import sparse
from edgeflock.shared.errors import ConfigError, JournalDamaged, JournalTooNew
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.numbers import RunTraffic
from edgeflock.shared.protocol import feed, wire
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.protocol.messages import Update
from edgeflock.shared.settings.config import parse
from edgeflock.tui.sources.replay import Recording
from edgeflock.tui.sources.state import MonitorState, reduce, snapshot
from tests.data import JOURNALS, RECORDINGS, expected, unpacked

LAYOUT = Layout.from_shapes([("w", (10, 4)), ("b", (4,))])
BEGAN = 1_000_000.0
SPARSE = next(mode for mode in range(9) if mode != sparse.DENSE)


def record(sequence: int, base: int, *, dense: bool = False) -> bytes:
    mode = sparse.DENSE if dense else SPARSE
    count = LAYOUT.size if dense else 1
    return wire.encode(Update(sequence, base, mode, 0, count, b"1234", b"5678", 0.5, 10, False))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """One device pushes for 100 s; a second one, dense, for 20 s and then once more at the end."""
    path = tmp_path / "journal.sqlite"
    journal = Journal(path)
    journal.begin_run("5f3c", "zoo:Net", LAYOUT, np.zeros(LAYOUT.size, np.float32), BEGAN)
    first, second = journal.device_id("pi-1"), journal.device_id("pi-2")
    config = parse(overrides=["coordination.learning_rate=0.1"])
    journal.add_regime(0, Regime.from_config(config))
    version = 0
    for second_ in range(101):
        now = BEGAN + second_
        version += 1
        journal.add_update(
            version, first, version, now, 1 / version, 10, record(version, max(0, version - 4))
        )
        if second_ < 20 or second_ == 100:
            version += 1
            journal.add_update(
                version,
                second,
                version,
                now + 0.5,
                float("nan"),
                32,
                record(version, version - 1, dense=True),
            )
        if second_ == 50:
            journal.add_snapshot(version, np.zeros(LAYOUT.size, np.float32))
            slower = parse(overrides=["coordination.learning_rate=0.05"])
            journal.add_regime(version, Regime.from_config(slower))
        if second_ % 10 == 0:
            journal.add_evaluation(
                Evaluation(version, now, 2.0 - second_ / 100, second_ / 100, 1000 * second_, 7)
            )
    journal.close()
    return path


def states(path: Path, most: int = 2000) -> list[MonitorState]:
    made: list[MonitorState] = []
    for frame in journal_frames(path, most):
        made.append(reduce(made[-1] if made else None, frame))
    return made


def test_the_run_is_all_there(path: Path) -> None:
    made = states(path)
    end = made[-1]
    assert (end.run.run, end.run.model, end.run.parameters) == ("5f3c", "zoo:Net", LAYOUT.size)
    one, two = (end.devices[n] for n in (1, 2))
    assert (one.name, one.updates, one.samples, one.compressed) == ("pi-1", 101, 1010, 101)
    assert (two.name, two.updates, two.samples, two.compressed) == ("pi-2", 21, 672, 0)
    assert (one.staleness, two.staleness) == (3, 0)
    assert one.loss == pytest.approx(1 / 121)
    assert two.loss is None, "it was not a number"
    assert end.overview.version == 122
    assert end.overview.cnc == 101 / 122
    assert sum(end.overview.staleness) == 122
    assert end.overview.staleness[0] == 21 + 1, "the dense ones, and the very first"
    last = len(record(122, 121, dense=True)) + 8
    assert end.overview.ingress == 100_000 + last, "what the server counted at its last evaluation, and since"
    assert [e.version for e in end.evaluations] == [e.version for e in Journal(path).evaluations()]
    assert end.overview.state == "finished"
    assert end.overview.began == BEGAN


def test_a_run_that_has_diverged_is_no_finished_one(path: Path) -> None:
    journal = Journal(path)
    journal.add_evaluation(Evaluation(122, BEGAN + 101, None, 0.1, 1, 1))
    journal.commit()
    journal.close()
    assert [one.overview.state for one in states(path)][-2:] == ["training", "diverged"]


def test_time_goes_as_it_went(path: Path) -> None:
    made = states(path)
    times = [state.time for state in made]
    assert times == sorted(times)
    assert (times[0], times[-1]) == (BEGAN, BEGAN + 100.5)
    assert all(after - before <= 1.0 + 1e-6 for before, after in zip(times, times[1:], strict=False))
    halfway = next(state for state in made if state.time >= BEGAN + 50)
    assert halfway.overview.version == 20 + 51
    assert halfway.overview.updates_per_s == pytest.approx(1.0, abs=0.11)
    assert halfway.evaluations[-1].time == BEGAN + 50


def test_who_pushes_no_more_is_away_until_it_does(path: Path) -> None:
    made = states(path)
    events = [(event.kind, event.device, event.time - BEGAN) for event in made[-1].events]
    assert ("joined", "pi-2", 0.5) in events
    assert ("joined", "pi-2", 100.5) in events
    (left,) = (when for kind, device, when in events if (kind, device) == ("left", "pi-2"))
    assert 19.5 + AWAY_SECONDS < left <= 19.5 + AWAY_SECONDS + 1
    assert made[-1].devices[2].state == "training"
    assert any(state.devices[2].state == "away" for state in made if 2 in state.devices)
    (change,) = (event.text for event in made[-1].events if event.kind == "config")
    assert change == "learning rate 0.1 -> 0.05"


def test_a_long_run_makes_no_more_frames_than_asked_for(path: Path) -> None:
    few = states(path, most=10)
    assert len(few) <= 13
    assert few[-1].overview.version == 122


def test_it_is_a_source_of_the_monitor(path: Path) -> None:
    recording = open_recording(path)
    assert recording.state(len(recording) - 1).overview.version == 122
    (source,) = sources(TopOptions([], [], 1.0, None, [path], 8.0, "50%"), None)
    assert source.state is not None
    assert source.state.time == pytest.approx(BEGAN + 50, abs=1)


def test_a_server_may_be_writing_meanwhile(path: Path) -> None:
    journal = Journal(path)
    journal.add_update(123, 1, 123, BEGAN + 101, 0.5, 10, record(123, 122))
    journal.commit()
    assert states(path)[-1].overview.version == 123
    journal.close()


def test_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE t (x)")
    db.close()
    with pytest.raises(JournalDamaged, match="is a database, but no journal of a run"):
        list(journal_frames(other))
    with pytest.raises(ConfigError, match="cannot be read as a run's journal"):
        list(journal_frames(tmp_path / "nowhere"))
    text = tmp_path / "text.sqlite"
    text.write_bytes(b"SQLite format 3\0 and no more" * 100)
    with pytest.raises(JournalDamaged, match=r"text\.sqlite is damaged, or no journal"):
        list(journal_frames(text))
    with pytest.raises(ConfigError, match="cannot be read"):
        open_recording(tmp_path / "nowhere")
    Journal(tmp_path / "fresh.sqlite").begin_run("r", "m", LAYOUT, np.zeros(LAYOUT.size, np.float32), BEGAN)
    with pytest.raises(ConfigError, match="holds no update yet"):
        list(journal_frames(tmp_path / "fresh.sqlite"))


def test_an_entry_that_is_no_update_is_named(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE updates SET frame = x'93' WHERE version = 7")
    with pytest.raises(JournalDamaged, match=r"journal\.sqlite: the entry of version 7 is no update"):
        list(journal_frames(path))


def test_a_journal_from_the_future_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(JournalTooNew, match="has journal schema 99"):
        open_recording(path)


def test_both_ways_a_journal_counts_up_to_its_last_evaluation(path: Path) -> None:
    """It does not know what each device was sent, but what all were by then."""
    end = states(path)[-1]
    newest = end.evaluations[-1]
    assert end.device_egress == 0
    assert newest.egress > 0
    dense = 4 * end.run.layout_size * newest.version
    assert end.traffic == RunTraffic(newest.ingress, newest.egress, dense)
    both = end.trend[-1].reduction_both_ways
    assert both == pytest.approx(2 * dense / (newest.ingress + newest.egress))


def test_a_journal_of_older_code_is_shown_and_left_as_it_is(tmp_path: Path) -> None:
    ((name, known),) = expected(JOURNALS).items()
    path = unpacked(JOURNALS / f"{name}.sqlite.gz", tmp_path)
    octets = path.read_bytes()
    end = states(path)[-1]
    assert end.overview.version == known["version"]
    assert sum(device.updates for device in end.devices.values()) == known["version"]
    assert {device.name for device in end.devices.values()} == {"device-0", "device-1", "device-2"}
    assert [evaluation.version for evaluation in end.evaluations][:2] == [10, 20]
    assert path.read_bytes() == octets


def digests(recording: Recording) -> dict[str, Any]:
    """Of all frames as the feed encodes them, and of all that the screen knows after each."""
    frames, states = sha256(), sha256()
    for number in range(len(recording)):
        frames.update(feed.encode(recording.frame(number)))
        state = recording.state(number)
        states.update(feed.encode(snapshot(state)))
        states.update(msgpack.packb([list(moment) for moment in state.trend]))
    times = sha256(msgpack.packb(recording.times)).hexdigest()
    return {
        "count": len(recording),
        "times": times,
        "frames": frames.hexdigest(),
        "states": states.hexdigest(),
    }


@pytest.mark.parametrize("name", expected(RECORDINGS))
def test_what_was_recorded_or_journaled_before_replays_to_the_same_bits(name: str, tmp_path: Path) -> None:
    folder = JOURNALS if name.endswith(".sqlite") else RECORDINGS
    recording = open_recording(unpacked(folder / f"{name}.gz", tmp_path))
    assert digests(recording) == expected(RECORDINGS)[name]
    recording.close()
