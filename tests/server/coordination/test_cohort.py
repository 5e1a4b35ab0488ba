"""Whose turn it is: who takes part in a round, for how many, and who comes next."""

from edgeflock.server.coordination.cohort import Cohort


def cohort(size: int, turns: int, devices: int) -> Cohort:
    """Of devices 1, 2, .. that have come in this order."""
    made = Cohort(size, turns)
    for device in range(1, devices + 1):
        made.add_device(device)
    return made


def test_who_comes_first_takes_part_and_the_others_wait() -> None:
    four = cohort(2, 1, devices=4)
    assert set(four.members) == {1, 2}
    assert [device in four.members for device in (1, 2, 3, 4, 5)] == [True, True, False, False, False]
    assert four.waiting == 2


def test_everybody_has_its_turn_in_the_order_of_their_coming() -> None:
    five, seen = cohort(2, 1, devices=5), []
    for _ in range(5):
        seen.append(sorted(five.members))
        five.end_round()
    assert seen == [[1, 2], [3, 4], [1, 5], [2, 3], [4, 5]]


def test_a_device_stays_for_its_turns_and_seats_become_free_one_by_one() -> None:
    seven, seen = cohort(3, 3, devices=7), []
    for _ in range(7):
        seen.append(sorted(seven.members))
        seven.end_round()
    assert seen[:4] == [[1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6]]
    rounds = [sum(device in members for members in seen) for device in (4, 5)]
    assert rounds == [3, 3]


def test_who_is_too_late_makes_room_for_who_has_waited_longest() -> None:
    five = cohort(2, 3, devices=4)
    five.end_round()  # 1 has had its only round
    assert set(five.members) == {2, 3}
    five.end_round(late=[3])
    assert set(five.members) == {4, 1}
    five.end_round()
    assert set(five.members) == {4, 1}


def test_all_take_part_where_there_are_no_more() -> None:
    two = cohort(3, 2, devices=2)
    for _ in range(5):
        assert set(two.members) == {1, 2}
        two.end_round()


def test_who_leaves_makes_room_for_as_long_as_it_would_have_stayed() -> None:
    four = cohort(2, 2, devices=4)
    four.remove_device(2)  # which had two rounds
    assert set(four.members) == {1, 3}
    four.end_round()
    assert set(four.members) == {3, 4}
    four.end_round()
    assert set(four.members) == {4, 1}


def test_who_waits_may_leave_and_comes_back_as_the_last() -> None:
    three = cohort(1, 1, devices=3)
    three.remove_device(2)
    three.remove_device(2)
    three.add_device(2)
    three.add_device(2)
    assert three.waiting == 2
    three.end_round()
    assert set(three.members) == {3}
    three.end_round()
    assert set(three.members) == {2}


def test_who_is_there_already_gains_nothing_by_coming_again() -> None:
    two = cohort(1, 2, devices=2)
    two.add_device(1)
    two.end_round()
    two.add_device(1)
    assert set(two.members) == {2}
