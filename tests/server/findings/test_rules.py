"""What is found in a picture, how long it stays, and what is not found."""

from dataclasses import replace
from typing import Any

import pytest

from edgeflock.server.findings import Blamed, Course, Picture, Portrait, Seen, Targets, changes, findings
from edgeflock.shared.protocol.frames import Evaluation, Finding

NOW = 1e9
PI = Portrait("pi", here=True)
USUAL = Seen(50, 0.6, 0.3, 1.0)


def kinds(picture: Picture, before: tuple[Finding, ...] = ()) -> list[tuple[str, str | None]]:
    return [(one.kind, one.device) for one in findings(picture, before)]


def of(device: Portrait, **more: Any) -> Picture:
    return replace(Picture(NOW, devices=(device,)), **more)


def fleet(*seen: Seen | None) -> Picture:
    return Picture(NOW, devices=tuple(Portrait(f"pi-{n}", True, seen=one) for n, one in enumerate(seen)))


ALONE = {
    "silent": (replace(PI, idle=True, silent=40.0), replace(PI, idle=False, silent=40.0)),
    "gone": (replace(PI, here=False, silent=40.0, why_left="killed: x"), replace(PI, here=False, silent=9.0)),
    "refused": (replace(PI, refused=5, refusing=0.3), replace(PI, refused=4, refusing=0.4)),
    "dropping": (replace(PI, dropped=1, drops=9), replace(PI, dropped=0, drops=9)),
    "held-out": (replace(PI, held_out=1), PI),
    "hot": (replace(PI, temperature=80.0), replace(PI, temperature=79.0)),
    "throttled": (replace(PI, throttled=True), PI),
    "undervoltage": (replace(PI, undervoltage=True), PI),
    "clock": (replace(PI, clock=-60.0), replace(PI, clock=59.0)),
}
"""Kind -> (a device of which it is so, one of which it is not)."""


@pytest.mark.parametrize("kind", ALONE)
def test_a_device_alone(kind: str) -> None:
    wrong, well = ALONE[kind]
    assert kinds(of(wrong)) == [(kind, "pi")]
    assert kinds(of(well)) == []


@pytest.mark.parametrize("why", ["finished: its part is done", "retired", "replaced: x", "stopped", None])
def test_who_left_as_it_should_is_no_finding(why: str | None) -> None:
    assert kinds(of(replace(PI, here=False, silent=1e6, why_left=why))) == []


@pytest.mark.parametrize(
    ("why", "remedy"),
    [("killed: x", "power"), ("refused: dropped", "refused for"), ("error: y", "its own log says")],
)
def test_what_to_do_is_of_why_it_left(why: str, remedy: str) -> None:
    (found,) = findings(of(replace(PI, here=False, silent=40.0, why_left=why)))
    assert remedy in found.remedy


def test_nobody_is_missed_once_the_run_is_over() -> None:
    lost = replace(PI, here=False, silent=1e6, why_left="killed: x")
    assert kinds(of(lost)) != []
    assert kinds(of(lost, state="finished")) == []


RUN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "disk": ({"free": 1 << 29}, {"free": 1 << 30}),
    "journal": ({"commit": 0.25}, {"commit": 0.2}),
    "targets": ({"targets": Targets(21.4, 1.0)}, {"targets": Targets(2.0, 3.0)}),
    "diverged": ({"diverged": Blamed("no number", None)}, {}),
}


@pytest.mark.parametrize("kind", RUN)
def test_the_run(kind: str) -> None:
    wrong, well = RUN[kind]
    assert kinds(replace(Picture(NOW), **wrong)) == [(kind, None)]
    assert kinds(replace(Picture(NOW), **well)) == []


def test_a_model_that_has_diverged_names_whose_update_it_was() -> None:
    (one,) = findings(Picture(NOW, diverged=Blamed("no number", "pi-3")))
    assert (one.device, one.severity, one.text) == ("pi-3", "critical", "no number")


def test_a_finding_keeps_its_time_and_does_not_flicker() -> None:
    began = findings(of(replace(PI, temperature=81.0)))
    cooler = of(replace(PI, temperature=76.0), time=NOW + 60)
    (still,) = findings(cooler, began)
    assert (still.since, still.text) == (NOW, "its processor has 76 degrees Celsius")
    assert kinds(cooler) == [], "it would not begin here"
    cold = findings(of(replace(PI, temperature=74.0)), (still,))
    assert changes((still,), cold).over == (still,)
    assert changes((), began).began == began


def test_the_worst_comes_first() -> None:
    picture = of(replace(PI, temperature=80.0, name="a"), diverged=Blamed("x", None), commit=1.0)
    assert [one.severity for one in findings(picture)] == ["critical", "warning", "warning"]


WRONG = Seen(50, -0.7, 2.0, 1.1)


def test_who_goes_against_the_others_and_fits_nothing_is_named() -> None:
    (one,) = findings(fleet(USUAL, USUAL, WRONG, USUAL._replace(agreement=0.5), USUAL))
    assert (one.kind, one.device) == ("disagrees", "pi-2")
    assert "cosine -0.70, the median is +0.60) and its loss is 2 where 0.3 is usual" in one.text


@pytest.mark.parametrize(
    "seen",
    [
        [USUAL, USUAL, WRONG],  # too few to tell
        [USUAL, USUAL, USUAL, USUAL, Seen(29, -0.7, 2.0, 1.1)],  # too early
        [USUAL, USUAL, USUAL, USUAL, Seen(50, -0.7, 0.4, 1.1)],  # it has what others lack
        [USUAL, USUAL, USUAL, USUAL, Seen(50, 0.6, 2.0, 1.1)],  # its data are hard
        [USUAL, USUAL, USUAL, USUAL, Seen(50, None, 2.0, 1.1), None],
        [Seen(50, -0.4 - n / 50, 0.1 + n / 50, 1.0) for n in range(7)],  # a label each
        [Seen(50, 0.0, 0.0, 0.0)] * 5,
    ],
)
def test_who_is_only_different_is_not(seen: list[Seen | None]) -> None:
    assert kinds(fleet(*seen)) == []


def test_it_is_over_only_once_it_goes_with_the_others_again() -> None:
    before = findings(fleet(USUAL, USUAL, WRONG, USUAL, USUAL))
    better = fleet(USUAL, USUAL, Seen(90, -0.1, 0.6, 1.0), USUAL, USUAL)
    assert kinds(better, before) == [("disagrees", "pi-2")]
    assert kinds(fleet(USUAL, USUAL, Seen(90, 0.5, 0.6, 1.0), USUAL, USUAL), before) == []


@pytest.mark.parametrize(("norm", "said"), [(4.0, "20.1 times as large"), (-2.0, "20.1 times as small")])
def test_updates_of_another_size(norm: float, said: str) -> None:
    (one,) = findings(fleet(USUAL, USUAL, USUAL, USUAL._replace(norm=norm)))
    assert (one.kind, one.device) == ("norm", "pi-3")
    assert said in one.text
    assert kinds(fleet(USUAL, USUAL, USUAL, USUAL._replace(norm=2.5))) == []
    (one,) = findings(fleet(USUAL, USUAL, USUAL, USUAL._replace(norm=8.1)))
    assert "its updates are 1,212 times as large" in one.text


def test_running_statistics_that_no_batch_has() -> None:
    absurd = USUAL._replace(absurd=0.3)
    (one,) = found = findings(fleet(USUAL, absurd, USUAL, USUAL._replace(absurd=0.29)))
    assert (one.kind, one.device) == ("statistics", "pi-1")
    assert "30% of its updates of late have means or variances far from the model's" in one.text
    assert kinds(fleet(USUAL, USUAL._replace(absurd=0.1), USUAL, USUAL), found) == [("statistics", "pi-1")]
    assert kinds(fleet(USUAL, USUAL._replace(absurd=0.09), USUAL, USUAL), found) == []
    assert kinds(fleet(USUAL, absurd, USUAL)) == [], "too few to tell"


def test_who_is_always_late() -> None:
    devices = [Portrait(f"pi-{n}", True, lag=lag) for n, lag in enumerate((6.0, 5.0, 6.0, 45.0))]
    assert kinds(Picture(NOW, devices=tuple(devices))) == [("stale", "pi-3")]
    assert kinds(Picture(NOW, devices=tuple(replace(one, lag=(one.lag or 0) / 3) for one in devices))) == []


def course(*losses: tuple[float, float], accuracy: float | None = None) -> Course:
    """After (test loss, training loss) a minute apart."""
    after = Course()
    for n, (test, training) in enumerate(losses):
        after = after.after(Evaluation(n * 100, NOW + n * 60, test, accuracy, 0, 0), training)
    return after


def test_overfitting() -> None:
    falling = [(1.0 - n / 40, 1.0 - n / 40) for n in range(20)]
    rising = [(0.5 + n / 20, 0.5 - n / 80) for n in range(20)]
    at = NOW + 40 * 60
    assert kinds(Picture(at, course=course(*falling))) == []
    assert ("overfitting", None) in kinds(Picture(at, course=course(*falling, *rising)))
    spoiled = course(*falling, *((test, 0.5 + n / 20) for n, (test, _) in enumerate(rising)))
    assert kinds(Picture(at, course=spoiled)) == [], "where both rise it is something else"


def test_no_improvement_for_long() -> None:
    flat = course((0.5, 0.5), (0.4, 0.4), *[(0.45, 0.4)] * 30)
    late = Picture(NOW + 31 * 60, 3100, course=flat)
    assert kinds(late) == [("stalled", None)]
    assert kinds(replace(late, state="finished")) == []
    assert kinds(replace(late, version=1000)) == [], "it has hardly moved"
    assert kinds(replace(late, time=NOW + 15 * 60)) == []
