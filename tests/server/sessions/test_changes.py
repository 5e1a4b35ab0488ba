"""What a gateway missed while its line was broken: all of it, in order, or nothing at all."""

from random import Random

from edgeflock.server.sessions.changes import Changes
from edgeflock.shared.protocol import gateway


def test_whoever_shows_a_mark_gets_all_that_followed() -> None:
    changes, marks, all_ = Changes(10_000), [], []
    for number in range(20):
        marks.append(changes.mark)
        all_.append(bytes([number]) * 100)
        changes.add(all_[-1])
    for number, mark in enumerate(marks):
        assert changes.knows(mark)
        assert changes.since(mark) == all_[number:]
    assert changes.since(changes.mark) == []


def test_both_ends_come_to_the_same_marks() -> None:
    changes = Changes(1 << 20)
    mark = changes.mark
    for version in range(1, 6):
        change = gateway.Change(version, [1], b"\1\0\0\0", b"\0\0\0\0", False, 0.1, None, None)
        changes.add(gateway.packed(change))
        (arrived,) = gateway.items(gateway.message([gateway.packed(change)]), gateway.OF_LEADERS)
        mark = gateway.marked(mark, gateway.packed(arrived))
        assert mark == changes.mark


def test_what_is_too_much_is_forgotten_and_never_half() -> None:
    random, changes = Random(0), Changes(1000)
    marks = {changes.mark: 0}
    sent: list[bytes] = []
    for _ in range(200):
        sent.append(random.randbytes(random.randrange(300)))
        changes.add(sent[-1])
        marks[changes.mark] = len(sent)
        known = [number for mark, number in marks.items() if changes.knows(mark)]
        assert known == list(range(known[0], len(sent) + 1))
        assert sum(map(len, sent[known[0] :])) <= 1000
        assert known[0] == 0 or sum(map(len, sent[known[0] - 1 :])) > 1000


def test_marks_of_another_life_mean_nothing() -> None:
    one, other = Changes(1000), Changes(1000)
    before = one.mark
    for changes in (one, other):
        changes.add(b"the same")
    assert one.mark != other.mark
    assert not other.knows(before)
    assert not other.knows(one.mark)
    assert not other.knows(b"")
