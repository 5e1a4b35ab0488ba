"""Rests that keep a share of a core, by clocks of the test's own."""

import pytest

from edgeflock.client.neighbour import Resting


class Machine:
    """A process that computes, and rests."""

    def __init__(self) -> None:
        self.used = self.now = 0.0

    def works(self, seconds: float, *, slowed: float = 1.0) -> None:
        """So many seconds of processor time; others may have the processor in between."""
        self.used += seconds
        self.now += seconds * slowed

    def rests(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def machine() -> Machine:
    return Machine()


def resting(share: float | None, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Resting:
    made = Resting(share, lambda: machine.used, lambda: machine.now)
    monkeypatch.setattr(made._closed, "wait", machine.rests)
    return made


@pytest.mark.parametrize("step", [0.002, 0.3, 2.0])
@pytest.mark.parametrize("share", [0.25, 0.9, 1.5])
def test_the_share_holds_whatever_a_step_takes(
    share: float, step: float, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pace = resting(share, machine, monkeypatch)
    machine.works(30.0)  # imports
    pace.begin()
    began, used = machine.now, machine.used
    for _ in range(round(60 / step)):
        pace.rest()
        machine.works(step)
    pace.rest()
    taken = (machine.used - used) / (machine.now - began)
    assert taken == pytest.approx(min(share, 1.0), rel=0.02)


def test_who_gets_less_than_it_may_does_not_rest(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    pace = resting(0.25, machine, monkeypatch)
    for _ in range(100):
        machine.works(0.1, slowed=5.0)
        before = machine.now
        pace.rest()
        assert machine.now == before


def test_without_a_share_there_is_no_rest(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    pace = resting(None, machine, monkeypatch)
    pace.begin()
    machine.works(100.0)
    pace.rest()
    assert machine.now == 100.0


def test_nobody_rests_once_it_is_closed(machine: Machine) -> None:
    pace = Resting(0.01, lambda: machine.used, lambda: machine.now)
    machine.works(1000.0)
    pace.close()
    pace.rest()
