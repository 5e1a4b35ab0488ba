"""`verify` decodes what it reads: a record that is as it was written, and no update, is not passed over."""

from dataclasses import replace
from pathlib import Path

import pytest

from edgeflock.server.journal import Journal
from edgeflock.server.ledger import verify
from edgeflock.server.ledger.recovery import replay
from edgeflock.shared.errors import JournalDamaged
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Pull, Update
from tests.server.pushes import LAYOUT, Watched, copy_as_killed, sparse_update

NEXT = sparse_update(1, 4, {3: 0.5})


def reported(directory: Path, frame: bytes) -> list[str]:
    """What `verify` says of a run of four updates, behind which a journal has `frame`."""
    (directory / "run").mkdir()
    run = Watched(directory / "run")
    for _ in range(4):
        run.commit()
    device = run.journal.device_id("the last")
    run.journal.add_update(5, device, NEXT.sequence, 0.0, NEXT.loss, NEXT.samples, frame)
    run.journal.commit()
    killed = copy_as_killed(run.directory, directory / "killed") / "journal.sqlite"
    run.journal.close()
    found = verify(killed)
    damage = [text for text in found.damage if "of devices that it does not know" not in text]
    assert (found.version, found.whole) == (5, 4 if damage else 5)
    journal = Journal(killed)
    try:
        replay(journal, LAYOUT)
    except JournalDamaged:
        assert damage, "what cannot be replayed is said to be damaged"
    finally:
        journal.abandon()
    return damage


def test_an_update_as_it_came_is_whole(tmp_path: Path) -> None:
    assert reported(tmp_path, wire.encode(NEXT)) == []


@pytest.mark.parametrize(
    ("forged", "why"),
    [
        (replace(NEXT, values=b"\0"), "1 values as f32 take 4 bytes, not 1"),
        (replace(NEXT, values=b"\0\0\xc0\x7f"), "the values hold NaN or infinity"),
        (replace(NEXT, base=5), "base 5 is ahead"),
        (replace(NEXT, sequence=2), "its record says number 2 of 10 samples, its row number 1 of 10"),
        (replace(NEXT, samples=1000), "its record says number 1 of 1000 samples"),
    ],
)
def test_a_record_that_is_no_update_of_its_row_is_damage(tmp_path: Path, forged: Update, why: str) -> None:
    (damage,) = reported(tmp_path, wire.encode(forged))
    assert damage.startswith("version 5 is not a valid update of the model: ")
    assert why in damage


@pytest.mark.parametrize("octets", [b"\xc1", wire.encode(Pull(None))])
def test_a_record_that_is_no_update_at_all_is_damage(tmp_path: Path, octets: bytes) -> None:
    (damage,) = reported(tmp_path, octets)
    assert damage.startswith("version 5 is not a valid update of the model: ")
