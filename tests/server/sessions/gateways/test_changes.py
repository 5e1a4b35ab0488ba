"""What a gateway missed while its line was broken: all of it, in order, or nothing at all."""

from random import Random

from edgeflock.server.sessions.gateways.changes import ChangeLog
from edgeflock.shared.protocol import gateway


def test_whoever_shows_a_mark_gets_all_that_followed() -> None:
    changes, marks, sent = ChangeLog(10_000), [], []
    for number in range(20):
        marks.append(changes.mark)
        sent.append(bytes([number]) * 100)
        changes.add(sent[-1])
    assert [changes.list_after(mark) for mark in marks] == [sent[number:] for number in range(20)]
    assert changes.list_after(changes.mark) == []
    assert gateway.advance(marks[3], 4) == marks[7]


def test_what_is_too_much_is_forgotten_and_never_half() -> None:
    random, changes = Random(0), ChangeLog(1000)
    marks, sent = [changes.mark], []
    for _ in range(200):
        sent.append(random.randbytes(random.randrange(300)))
        changes.add(sent[-1])
        marks.append(changes.mark)
        found = [changes.list_after(mark) for mark in marks]
        known = found.index(next(one for one in found if one is not None))
        assert found == [None] * known + [sent[number:] for number in range(known, len(marks))]
        assert sum(map(len, sent[known:])) <= 1000
        assert known == 0 or sum(map(len, sent[known - 1 :])) > 1000


def test_other_marks_mean_nothing() -> None:
    one, other = ChangeLog(1000), ChangeLog(1000)
    before = one.mark
    for changes in (one, other):
        changes.add(b"the same")
    for mark in (before, one.mark, b"", b"x", gateway.advance(other.mark, 1), other.mark + b"x"):
        assert other.list_after(mark) is None
