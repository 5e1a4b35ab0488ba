"""What may be spent a second, by a clock of the test's own."""

from hypothesis import given
from hypothesis import strategies as st

from edgeflock.client.neighbour.limits import Allowance


def test_what_is_spent_has_to_be_worth_it() -> None:
    allowance = Allowance(100.0, now=5.0)
    assert allowance.spend(50.0, 5.0) == 0.5
    assert allowance.spend(0.0, 5.25) == 0.25
    assert allowance.spend(0.0, 5.5) == 0.0


def test_a_long_silence_saves_a_quarter_of_a_second() -> None:
    allowance = Allowance(100.0, now=0.0)
    assert allowance.spend(10.0, 1000.0) == 0.0
    assert allowance.spend(25.0, 1000.0) == 0.0
    assert allowance.spend(10.0, 1000.0) == 0.1


def test_what_was_spent_along_the_way_was_worth_the_way() -> None:
    allowance = Allowance(0.25, now=0.0)
    assert allowance.spend(1.0, 4.0) == 0.0
    assert allowance.spend(1.0, 5.0) == 3.0


def test_what_was_spent_before_it_begins_is_forgiven() -> None:
    allowance = Allowance(1.0, now=0.0)
    allowance.spend(60.0, 1.0)
    allowance.begin(2.0)
    assert allowance.spend(0.0, 2.0) == 0.0


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 3)), max_size=40), st.floats(0.1, 50))
def test_whoever_waits_never_spends_more(spendings: list[tuple[float, float]], rate: float) -> None:
    """After each wait, all that was spent since the start is worth the time since the start."""
    allowance, now, spent = Allowance(rate, 0.0), 0.0, 0.0
    for amount, silence in spendings:
        now += silence
        spent += amount
        now += allowance.spend(amount, now)
        assert spent <= rate * now * (1 + 1e-9) + 1e-9
