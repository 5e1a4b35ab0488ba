"""The gate, by property: how far devices get ahead, and that nobody waits for ever."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edgeflock.server.coordination.asynchronous import Asynchronous
from edgeflock.server.coordination.coordinator import Push
from edgeflock.server.coordination.gates import Gate
from edgeflock.server.descent.parameters import Parameters
from edgeflock.server.descent.regime import Regime
from edgeflock.server.engine.engine import Engine
from edgeflock.server.engine.limits import EngineLimits
from edgeflock.server.engine.outcomes import Accepted
from edgeflock.server.journal.journal import Journal
from edgeflock.server.ledger.recovery import recover, replay
from edgeflock.shared.errors import Refused, Superseded
from edgeflock.shared.protocol.messages import Receipt
from tests.server.pushes import LAYOUT, REGIME, THETA, push, sparse_update


class NoLog:
    """A log that keeps nothing: these runs are looked at while they last."""

    def __getattr__(self, name: str) -> object:
        return lambda *arguments, **named: {} if name == "last_receipts" else None


class Noting:
    """A gate that notes what is made."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.versions: dict[int, list[int]] = {}
        """device -> those that its updates made."""
        self.before_made: Callable[[int], None] = lambda device: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gate, name)

    def record_update(self, device: int, version: int) -> None:
        self.before_made(device)
        self.versions.setdefault(device, []).append(version)
        self._gate.record_update(device, version)


def engine_of(gate: Any, updates: int = 0) -> Engine:
    parameters = Parameters(0, THETA.copy(), regime=Regime("none", 0.1, 4096), start=0)
    return Engine(
        NoLog(),  # type: ignore[arg-type]
        LAYOUT,
        parameters,
        Asynchronous(),
        EngineLimits(updates=updates),
        gate=gate,
    )


@dataclass
class Fleet:
    """Devices that do one thing after the other, as somebody else chooses."""

    engine: Engine
    sequence: Counter[int] = field(default_factory=Counter)
    """Of each device's last update."""
    base: dict[int, int] = field(default_factory=dict)
    """The version that each device that is there computes from, or did."""
    waiting: dict[int, Push] = field(default_factory=dict)

    def act(self, device: int, leaves: bool) -> None:
        if device not in self.base:
            self.engine.add_device(device)
            self.base[device] = self.engine.parameters.version
        elif leaves:
            self.engine.remove_device(device)
            del self.base[device]
            self.waiting.pop(device, None)  # it comes back with an empty memory
            self.take([])
        elif device not in self.waiting:
            self.sequence[device] += 1
            self.push(device)

    def push(self, device: int) -> None:
        one = push(device, sparse_update(self.sequence[device], self.base[device], {}, pull=True))
        self.waiting[device] = one
        self.take([one])

    def take(self, pushes: list[Push]) -> None:
        for one, answer in self.engine.commit(pushes):
            if isinstance(answer, Refused):
                assert isinstance(answer, Superseded)
            elif self.waiting.get(one.device) is one:
                del self.waiting[one.device]
                assert answer.receipt.model is not None
                self.base[one.device] = answer.receipt.model.version

    @property
    def at_work(self) -> set[int]:
        return self.base.keys() - self.waiting.keys()


DEEDS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9).map(lambda n: n == 0)), max_size=80)
"""(device, whether it leaves)"""
BOUNDS = st.integers(0, 4)


@given(DEEDS, BOUNDS)
def test_no_update_is_made_while_another_s_model_lacks_more_than_the_bound_of_its_device(
    deeds: list[tuple[int, bool]], bound: int
) -> None:
    gate = Noting(Gate(bound))
    fleet = Fleet(engine_of(gate))

    def look(device: int) -> None:
        for other in fleet.at_work - {device}:
            lacks = sum(version > fleet.base[other] for version in gate.versions.get(device, []))
            assert lacks <= bound

    gate.before_made = look
    for deed in deeds:
        fleet.act(*deed)


@given(deeds=DEEDS, bound=BOUNDS)
@settings(max_examples=50)
def test_nobody_waits_for_ever(deeds: list[tuple[int, bool]], bound: int) -> None:
    """Whoever comes and goes: while somebody waits, somebody is at work, and once these are done or gone
    everybody is answered."""
    fleet = Fleet(engine_of(Gate(bound)))
    for deed in deeds:
        fleet.act(*deed)
        assert fleet.at_work or not fleet.waiting
    for device in sorted(fleet.at_work):
        fleet.act(device, True)
    while fleet.waiting:
        before = len(fleet.waiting)
        for device in sorted(fleet.at_work):
            fleet.act(device, True)
        assert len(fleet.waiting) < before


def test_the_answer_brings_the_model_as_it_is_by_then() -> None:
    fleet = Fleet(engine_of(Gate(0)))
    for device in (1, 2, 1):
        fleet.act(device, False)
    assert fleet.engine.parameters.version == 1
    assert 1 in fleet.waiting
    fleet.act(2, False)
    assert fleet.base == {1: 2, 2: 2}


def test_an_update_that_is_sent_again_is_answered_once() -> None:
    fleet = Fleet(engine_of(Gate(0)))
    for device in (1, 2, 1):
        fleet.act(device, False)
    first = fleet.waiting[1]
    fleet.push(1)
    again = fleet.waiting[1]
    assert again is not first
    answers = dict(fleet.engine.commit([push(2, sparse_update(1, 0, {}))]))
    accepted = answers[again]
    assert isinstance(accepted, Accepted)
    assert accepted.receipt.version == 1
    assert first not in answers
    assert fleet.engine.parameters.version == 2


def test_one_that_begins_anew_while_it_waits_is_not_ahead_for_it() -> None:
    """Its next update is looked at once the slowest has caught up."""
    fleet = Fleet(engine_of(Gate(0)))
    for device in (1, 2, 1):
        fleet.act(device, False)
    fleet.act(1, True)
    fleet.act(1, False)
    fleet.act(1, False)
    assert fleet.engine.parameters.version == 1
    fleet.act(2, False)
    assert [fleet.engine.receipts.last_sequence(device) for device in (1, 2)] == [2, 1]


def test_the_end_of_the_run_opens_every_gate() -> None:
    fleet = Fleet(engine_of(Gate(0), updates=1))
    for device in (1, 2, 1):
        fleet.act(device, False)
    assert not fleet.waiting


def test_a_journal_knows_nothing_of_gates(tmp_path: Path) -> None:
    """What was answered late replays to the same bits."""
    journal = Journal(tmp_path / "journal.sqlite")
    journal.begin_run("run", "package:Model", LAYOUT, THETA, 1_700_000_000.0)
    engine = Engine(journal, LAYOUT, recover(journal, LAYOUT, REGIME), Asynchronous(), gate=Gate(0))
    one, two = engine.device_id("one"), engine.device_id("two")
    engine.add_device(one)
    engine.add_device(two)
    assert engine.commit([push(one, sparse_update(1, 0, {1: 1.0}))]) == []
    answers = dict(engine.commit([push(two, sparse_update(1, 0, {1: 2.0}))]))
    assert {
        push.device: answer.receipt for push, answer in answers.items() if isinstance(answer, Accepted)
    } == {one: Receipt(1, 1, None), two: Receipt(1, 2, None)}
    assert replay(journal, LAYOUT).theta.tobytes() == engine.theta()[1].tobytes()
    journal.close()
