"""What a run that was cut short leaves behind, and which of two such journals is gone on from."""

import math
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from edgeflock.devices.emulation.interrupted import JOURNAL, Interrupted
from edgeflock.server.ledger.journal import Journal
from edgeflock.server.ledger.records import UpdateReceipt
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.protocol.messages import Update
from tests.server.pushes import LAYOUT, THETA, sparse_update


def begin(directory: Path) -> Journal:
    directory.mkdir(exist_ok=True)
    journal = Journal(directory / JOURNAL, durable=False)
    journal.begin_run("fleet", "package:Model", LAYOUT, THETA, 0.0)
    return journal


def update(sequence: int, base: int, mark: float) -> Update:
    return sparse_update(sequence, base, {3: mark, 7: 1.0})


def leave(directory: Path, count: int, mark: float = 0.5) -> None:
    """A journal of `count` updates, two of every three of device 1, one a second, each evaluated."""
    with closing(begin(directory)) as journal:
        one, two = journal.device_id("one"), journal.device_id("two")
        for version in range(1, count + 1):
            device, sequence = (two, version // 3) if version % 3 == 0 else (one, version - version // 3)
            record = update(sequence, version - 1, mark)
            journal.add_update(version, device, sequence, float(version), 0.5, 10, wire.encode(record))
            journal.add_evaluation(Evaluation(version, float(version), mark + version, 0.25, 1, 2))


def test_the_first_run_finds_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "run"
    with closing(Interrupted(directory)) as earlier:
        assert directory.is_dir()
        assert earlier.update(1, 1, math.inf) is None
        assert earlier.evaluation(1) is None


def test_what_was_journaled_is_found_again(tmp_path: Path) -> None:
    leave(tmp_path / "run", 7)
    with closing(Interrupted(tmp_path / "run")) as earlier:
        assert not (tmp_path / "run" / JOURNAL).exists(), "there is room for the next one"
        assert [earlier.update(1, sequence, math.inf) for sequence in range(1, 7)] == [
            *(update(sequence, base, 0.5) for sequence, base in enumerate((0, 1, 3, 4, 6), 1)),
            None,
        ]
        assert [earlier.update(2, sequence, math.inf) for sequence in (1, 2, 3)] == [
            update(1, 2, 0.5),
            update(2, 5, 0.5),
            None,
        ]
        assert earlier.update(3, 1, math.inf) is None
        assert earlier.evaluation(7) == (7.5, 0.25)
        assert earlier.evaluation(8) is None


def test_what_was_pushed_later_is_not_found(tmp_path: Path) -> None:
    """A device that left before made another one first, which came to nothing."""
    leave(tmp_path / "run", 4)
    with closing(Interrupted(tmp_path / "run")) as earlier:
        assert earlier.update(1, 3, 4.0) == update(3, 3, 0.5)
        assert earlier.update(1, 3, 3.9) is None


def test_an_evaluation_without_a_loss_is_made_again(tmp_path: Path) -> None:
    with closing(begin(tmp_path / "run")) as journal:
        journal.add_evaluation(Evaluation(1, 1.0, None, 0.25, 1, 2))
        journal.add_evaluation(Evaluation(2, 2.0, 0.75, None, 1, 2))
    with closing(Interrupted(tmp_path / "run")) as earlier:
        assert earlier.evaluation(1) is None
        assert earlier.evaluation(2) == (0.75, None)


@pytest.mark.parametrize(("counts", "known"), [((5, 3), 5), ((3, 5), 5), ((5, 0, 2), 5), ((2, 5, 4, 8), 8)])
def test_the_run_that_got_furthest_is_gone_on_from(
    counts: tuple[int, ...], known: int, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    for count in counts:
        Interrupted(directory).close()
        leave(directory, count, mark=float(count))
    with closing(Interrupted(directory)) as earlier:
        assert earlier.evaluation(known) == (2.0 * known, 0.25)
        assert earlier.evaluation(known + 1) is None
        assert earlier.update(1, 1, math.inf) == update(1, 0, float(known))


@pytest.mark.parametrize("before", [0, 4])
def test_a_run_that_never_began_is_forgotten(before: int, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    if before:
        leave(directory, before)
        Interrupted(directory).close()
    directory.mkdir(exist_ok=True)
    Journal(directory / JOURNAL, durable=False).close()
    for _ in range(2):
        with closing(Interrupted(directory)) as earlier:
            assert not (directory / JOURNAL).exists()
            assert (earlier.update(1, 1, math.inf) is not None) == (before > 0)


def test_a_journal_that_nobody_closed_is_whole(tmp_path: Path) -> None:
    """As `kill -9` leaves it: what was committed lies in the write-ahead log."""
    with closing(begin(tmp_path / "run")) as journal:
        device = journal.device_id("one")
        for version in (1, 2, 3):
            journal.add_update(
                version, device, version, 0.0, 0.5, 10, wire.encode(update(version, version - 1, 0.5))
            )
            journal.commit()
        shutil.copytree(tmp_path / "run", tmp_path / "killed", ignore=shutil.ignore_patterns("*-shm"))
    with closing(Interrupted(tmp_path / "killed")) as earlier:
        assert earlier.update(1, 3, math.inf) == update(3, 2, 0.5)
        assert earlier.update(1, 4, math.inf) is None


def test_a_run_that_is_over_leaves_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    leave(directory, 3)
    earlier = Interrupted(directory)
    leave(directory, 5)
    earlier.close()
    earlier.remove()
    assert list(tmp_path.iterdir()) == []


# What the journal does for it


def test_frames_name_the_updates_whose_records_are_there(tmp_path: Path) -> None:
    with closing(begin(tmp_path)) as journal:
        device = journal.device_id("one")
        for version, sequence, frame in (
            (1, 4, b"first"),
            (2, 7, b"second"),
            (3, 9, b""),
            (4, 12, b"fourth"),
        ):
            journal.add_update(version, device, sequence, version / 8, 0.5, 10, frame)
        assert journal.frames() == {}, "nothing is there before the commit"
        journal.commit()
        assert journal.frames() == {
            (device, 4): UpdateReceipt(1, 0.125),
            (device, 7): UpdateReceipt(2, 0.25),
            (device, 12): UpdateReceipt(4, 0.5),
        }
        journal.drop_frames(1)
        assert journal.frames() == {(device, 7): UpdateReceipt(2, 0.25), (device, 12): UpdateReceipt(4, 0.5)}


def test_a_journal_need_not_wait_for_the_disk(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "journal.sqlite", durable=False)) as journal:
        assert journal.db.row("PRAGMA synchronous") == (0,)
