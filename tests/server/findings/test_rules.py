"""What is found in a picture, and what is not."""

from dataclasses import replace
from typing import Any

import pytest

from edgeflock.server.findings import (
    AgreementAverages,
    DeviceStatus,
    Diagnosis,
    Divergence,
    EvaluationHistory,
    RunStatus,
    Targets,
    diagnose,
)
from edgeflock.shared.protocol.frames import GATEWAY_LOST, Evaluation, Finding

NOW, LONG = 1e9, 3600.0
PI = DeviceStatus("pi", present=True)
NOTHING = Diagnosis()
USUAL = AgreementAverages(100, 0.6, 0.3, 0.0, peak=2.3)


def lasting(status: RunStatus, before: Diagnosis = NOTHING) -> Diagnosis:
    """Of a picture that stays as it is."""
    return diagnose(replace(status, time=status.time + LONG), diagnose(status, before))


def findings(status: RunStatus) -> tuple[Finding, ...]:
    return lasting(status).findings


def kinds(status: RunStatus, before: Diagnosis = NOTHING) -> list[tuple[str, str | None]]:
    return [(one.kind, one.device) for one in lasting(status, before).findings]


def of(device: DeviceStatus, **more: Any) -> RunStatus:
    return replace(RunStatus(NOW, devices=(device,)), **more)


def fleet(*seen: AgreementAverages | None) -> RunStatus:
    return RunStatus(
        NOW, devices=tuple(DeviceStatus(f"pi-{n}", True, averages=one) for n, one in enumerate(seen))
    )


ALONE = {
    "silent": (replace(PI, idle=True, silent_seconds=40.0), replace(PI, idle=False, silent_seconds=40.0)),
    "gone": (
        replace(PI, present=False, silent_seconds=40.0, leave_reason="killed: x"),
        replace(PI, present=False, silent_seconds=9.0),
    ),
    "refused": (
        replace(PI, refused_updates=5, refused_share=0.3),
        replace(PI, refused_updates=4, refused_share=0.4),
    ),
    "flapping": (replace(PI, departures=4), replace(PI, departures=3)),
    "disk": (replace(PI, unwritten_samples=1), PI),
    "unfit": (replace(PI, unfit_samples=5, samples=100), replace(PI, unfit_samples=4, samples=100)),
    "dropping": (replace(PI, recent_drops=1, total_drops=9), replace(PI, recent_drops=0, total_drops=9)),
    "held-out": (replace(PI, held_out_rows=1), PI),
    "hot": (replace(PI, temperature=80.0), replace(PI, temperature=79.0)),
    "throttled": (replace(PI, throttled=True), PI),
    "undervoltage": (replace(PI, undervoltage=True), PI),
    "clock": (replace(PI, clock_error=-60.0), replace(PI, clock_error=59.0)),
}
"""Kind -> (a device of which it is so, one of which it is not)."""


@pytest.mark.parametrize("kind", ALONE)
def test_a_device_alone(kind: str) -> None:
    wrong, well = ALONE[kind]
    quiet = [
        DeviceStatus(name, present=True) for name in "abc"
    ]  # of one device alone nobody can tell what is usual
    assert kinds(RunStatus(NOW, devices=(wrong, *quiet))) == [(kind, "pi")]
    assert kinds(RunStatus(NOW, devices=(well, *quiet))) == []


def test_a_silent_page_may_be_hidden() -> None:
    silent = replace(PI, idle=True, silent_seconds=40.0)
    for browser, remedy in ((True, "look at its page, which may be hidden"), (False, "look at its log")):
        (found,) = findings(of(replace(silent, browser=browser)))
        assert found.remedy.startswith(remedy)


def test_of_a_device_that_left_with_its_gateway_the_gateway_is_looked_at_first() -> None:
    away = replace(PI, present=False, silent_seconds=40.0, leave_reason=f"{GATEWAY_LOST} hall broke")
    (one,) = findings(of(away))
    assert one.kind == "gone"
    assert one.remedy.startswith("look whether the gateway runs")


def test_a_device_that_an_operator_revoked_is_not_looked_for() -> None:
    revoked = replace(PI, present=False, silent_seconds=40.0, leave_reason="refused: unauthorized")
    assert not findings(of(revoked))


def test_a_full_disk_is_no_buffer_that_is_too_small() -> None:
    (one,) = findings(of(replace(PI, unwritten_samples=7, total_drops=9)))
    assert (one.kind, one.text) == (
        "disk",
        "its disk is full: 7 recent samples were dropped instead of stored",
    )
    (one,) = findings(of(replace(PI, spool_fails=True)))
    assert (one.kind, one.device) == ("disk", "pi")


def test_where_most_are_refused_nobody_is_to_blame() -> None:
    refused = tuple(
        DeviceStatus(f"pi-{n}", present=True, refused_updates=9, refused_share=0.6) for n in range(5)
    )
    assert kinds(RunStatus(NOW, devices=(*refused, PI, PI, PI))) == [("refused", None)]
    assert len(kinds(RunStatus(NOW, devices=(*refused[:2], PI, PI, PI)))) == 2


def test_where_all_come_and_go_nobody_flaps() -> None:
    fleet = tuple(DeviceStatus(f"pi-{n}", present=True, departures=5 + n % 3) for n in range(8))
    assert kinds(RunStatus(NOW, devices=fleet)) == []


@pytest.mark.parametrize("why", ["finished: its part is done", "retired", "replaced: x", "stopped", None])
def test_who_left_as_it_should_is_no_finding(why: str | None) -> None:
    assert kinds(of(replace(PI, present=False, silent_seconds=1e6, leave_reason=why))) == []


@pytest.mark.parametrize(
    ("why", "remedy"),
    [("killed: x", "power"), ("refused: dropped", "refused for"), ("error: y", "its own log says")],
)
def test_what_to_do_is_of_why_it_left(why: str, remedy: str) -> None:
    (found,) = findings(of(replace(PI, present=False, silent_seconds=40.0, leave_reason=why)))
    assert remedy in found.remedy


def test_nobody_is_missed_once_the_run_is_over() -> None:
    lost = replace(PI, present=False, silent_seconds=1e6, leave_reason="killed: x")
    assert kinds(of(lost)) != []
    assert kinds(of(lost, state="finished")) == []


RUN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "disk": ({"free_bytes": 1 << 29}, {"free_bytes": 1 << 30}),
    "journal": ({"commit_seconds": 0.25}, {"commit_seconds": 0.2}),
    "unevaluated": ({"is_evaluated": False}, {}),
    "targets": ({"targets": Targets(21.4, 1.0)}, {"targets": Targets(2.0, 3.0)}),
    "diverged": ({"divergence": Divergence("no number", None)}, {}),
}


@pytest.mark.parametrize("kind", RUN)
def test_the_run(kind: str) -> None:
    wrong, well = RUN[kind]
    assert kinds(replace(RunStatus(NOW), **wrong)) == [(kind, None)]
    assert kinds(replace(RunStatus(NOW), **well)) == []


def test_a_model_that_has_diverged_names_whose_update_it_was() -> None:
    (one,) = findings(RunStatus(NOW, divergence=Divergence("no number", "pi-3")))
    assert (one.device, one.severity, one.text) == ("pi-3", "critical", "no number")


def test_the_worst_comes_first() -> None:
    status = of(replace(PI, temperature=80.0, name="a"), divergence=Divergence("x", None), commit_seconds=1.0)
    assert [one.severity for one in findings(status)] == ["critical", "warning", "warning"]


WRONG = AgreementAverages(100, -0.7, 2.0, 1.1, 1.7)


def test_who_goes_against_the_others_and_fits_nothing_is_named() -> None:
    (one,) = findings(fleet(USUAL, USUAL, WRONG, USUAL._replace(agreement=0.5), USUAL))
    assert (one.kind, one.device) == ("disagrees", "pi-2")
    assert "cosine -0.70, the median is +0.60) and its loss is 2 where 0.3 is usual" in one.text


def test_who_fits_a_little_but_far_worse_than_anybody_did_is_named() -> None:
    scaled = AgreementAverages(100, -0.1, 12.0, 0.1, 11.7, peak=28.0)  # inputs 255 times too large
    (one,) = findings(fleet(USUAL, USUAL, scaled, USUAL, USUAL))
    assert (one.kind, one.device) == ("disagrees", "pi-2")


def test_who_fits_its_labels_and_sends_the_opposite_is_named() -> None:
    (one,) = findings(fleet(USUAL, USUAL, AgreementAverages(100, -0.5, 0.3, 0.0, 0.0), USUAL, USUAL))
    assert (one.kind, one.device) == ("disagrees", "pi-2")
    assert "wrong sign" in one.remedy


@pytest.mark.parametrize(
    "seen",
    [
        [USUAL, USUAL, WRONG],  # too few to tell
        [USUAL, USUAL, USUAL, USUAL, AgreementAverages(99, -0.7, 2.0, 1.1, 1.7)],  # too early
        [USUAL, USUAL, USUAL, USUAL, AgreementAverages(100, -0.7, 0.4, 1.1, 0.1)],  # it has what others lack
        [USUAL, USUAL, USUAL, USUAL, AgreementAverages(100, -0.7, 0.1, 1.1, -0.2)],  # and has come to fit it
        [USUAL, USUAL, USUAL, USUAL, AgreementAverages(100, -0.2, 0.3, 1.1, 0.0)],  # it goes its own way
        [USUAL, USUAL, USUAL, USUAL, WRONG._replace(peak=2.4)],  # the model comes to fit what it has
        [
            USUAL,
            USUAL,
            USUAL,
            USUAL,
            AgreementAverages(100, -0.5, 0.3, 0.8, 0.0),
        ],  # few labels: its updates are larger
        [USUAL, USUAL, USUAL, USUAL, AgreementAverages(100, 0.6, 2.0, 1.1, 1.7)],  # its data are hard
        [USUAL, USUAL, USUAL, USUAL, AgreementAverages(100, None, 2.0, 1.1, 1.7), None],
        [AgreementAverages(100, -0.4 - n / 50, 0.1 + n / 50, 1.0) for n in range(7)],  # a label each
        [AgreementAverages(100, 0.0, 0.0, 0.0)] * 5,
    ],
)
def test_who_is_only_different_is_not(seen: list[AgreementAverages | None]) -> None:
    assert kinds(fleet(*seen)) == []


def test_it_is_over_only_once_it_goes_with_the_others_again() -> None:
    before = lasting(fleet(USUAL, USUAL, WRONG, USUAL, USUAL))
    better = fleet(USUAL, USUAL, AgreementAverages(190, -0.1, 0.6, 1.0, 0.3), USUAL, USUAL)
    assert kinds(better, before) == [("disagrees", "pi-2")]
    assert kinds(fleet(USUAL, USUAL, AgreementAverages(190, 0.5, 0.6, 1.0), USUAL, USUAL), before) == []


@pytest.mark.parametrize(("norm", "said"), [(3.0, "20.1 times as large"), (-3.0, "20.1 times as small")])
def test_updates_of_another_size(norm: float, said: str) -> None:
    (one,) = findings(fleet(USUAL, USUAL, USUAL, USUAL._replace(norm=norm)))
    assert (one.kind, one.device) == ("norm", "pi-3")
    assert said in one.text
    assert kinds(fleet(USUAL, USUAL, USUAL, USUAL._replace(norm=2.2))) == []
    (one,) = findings(fleet(USUAL, USUAL, USUAL, USUAL._replace(norm=7.1)))
    assert "its updates are 1,212 times as large" in one.text
    hard = USUAL._replace(norm=3.0, loss=1.5)
    assert kinds(fleet(USUAL, USUAL, USUAL, hard)) == [], "it still learns what the others know"
    assert kinds(fleet(USUAL, USUAL, USUAL, hard._replace(norm=5.0, loss=1e3))) == [("norm", "pi-3")]


def test_running_statistics_that_no_batch_has() -> None:
    absurd = USUAL._replace(absurd_share=0.3)
    found = lasting(fleet(USUAL, absurd, USUAL, USUAL._replace(absurd_share=0.29)))
    (one,) = found.findings
    assert (one.kind, one.device) == ("statistics", "pi-1")
    assert "30% of its recent updates have means or variances far from the model's" in one.text
    assert kinds(fleet(USUAL, USUAL._replace(absurd_share=0.1), USUAL, USUAL), found) == [
        ("statistics", "pi-1")
    ]
    assert kinds(fleet(USUAL, USUAL._replace(absurd_share=0.09), USUAL, USUAL), found) == []
    assert kinds(fleet(USUAL, absurd, USUAL)) == [], "too few to tell"


def slow(lag: float, **more: Any) -> RunStatus:
    others = [DeviceStatus(f"pi-{n}", True, lag=of_it) for n, of_it in enumerate((6.0, 5.0, 6.0))]
    return RunStatus(NOW, devices=(*others, DeviceStatus("pi-3", True, lag=lag, **more)))


def test_who_is_always_late() -> None:
    assert kinds(slow(91.0)) == [("stale", "pi-3")]
    assert kinds(slow(60.0)) == [], "devices ten times as slow as others are no fault"
    assert kinds(slow(61.0), lasting(slow(91.0))) == [("stale", "pi-3")]


@pytest.mark.parametrize(
    ("step", "said"), [(9.0, "its processor is slow"), (0.5, "its connection is slow"), (None, "it is slow")]
)
def test_why_it_is_late(step: float | None, said: str) -> None:
    (one,) = findings(slow(91.0, step=step, interval=10.0))
    assert one.remedy.startswith(said)


def course(*losses: tuple[float, float], accuracy: float | None = None) -> EvaluationHistory:
    """After (test loss, training loss) a minute apart."""
    after = EvaluationHistory()
    for n, (test, training) in enumerate(losses):
        after = after.with_evaluation(Evaluation(n * 100, NOW + n * 60, test, accuracy, 0, 0), training)
    return after


def test_overfitting() -> None:
    falling = [(1.0 - n / 40, 1.0 - n / 40) for n in range(20)]
    rising = [(0.5 + n / 20, 0.5 - n / 80) for n in range(20)]
    at = NOW + 40 * 60
    assert kinds(RunStatus(at, history=course(*falling))) == []
    assert ("overfitting", None) in kinds(RunStatus(at, history=course(*falling, *rising)))
    spoiled = course(*falling, *((test, 0.5 + n / 20) for n, (test, _) in enumerate(rising)))
    assert kinds(RunStatus(at, history=spoiled)) == [], "where both rise it is something else"


def test_a_training_loss_that_wavers_does_not_end_it() -> None:
    falling = [(1.0 - n / 40, 1.0 - n / 40) for n in range(20)]
    rising = [(0.5 + n / 20, 0.5 - n / 80) for n in range(20)]
    before = lasting(RunStatus(NOW, history=course(*falling, *rising)))
    higher = RunStatus(NOW + 2 * LONG, history=course(*falling, *rising, *[(1.4, 0.48)] * 5))
    assert kinds(higher) == [], "it would not begin here"
    assert kinds(higher, before) == [("overfitting", None)]


@pytest.mark.parametrize(
    ("test", "training", "said"),
    [
        (2.25, 2.28, "hardly learns"),
        (9.0, 8.0, "gets worse"),
        (2.6, 7.0, "gets worse"),
        (2.25, 1.0, ""),
        (2.1, 2.28, ""),
    ],
)
def test_a_model_that_does_not_learn(test: float, training: float, said: str) -> None:
    after = course((2.3, 900.0), *[(test, training)] * 19)
    found = findings(RunStatus(NOW + 20 * 60, 500, history=after))
    assert [one.kind for one in found if one.kind != "overfitting"] == (["learning"] if said else [])
    assert all(said in one.text for one in found)
    early = RunStatus(NOW, 499, history=after)
    assert "learning" not in [kind for kind, _ in kinds(early)], "nobody can tell yet"


def test_who_falls_from_where_a_rate_has_thrown_it_does_not_overfit() -> None:
    thrown = [
        (4.0, 3.0),
        *[(2.0, 900.0 / (n + 1)) for n in range(10)],
        *[(3.0, 20.0 / n) for n in range(1, 9)],
    ]
    after = course(*thrown, *[(3.0, 3.5)] * 20)
    assert "overfitting" not in [kind for kind, _ in kinds(RunStatus(NOW + 40 * 60, history=after))]


def test_no_improvement_for_long() -> None:
    flat = course((0.5, 0.5), (0.4, 0.4), *[(0.45, 0.4)] * 30)
    late = RunStatus(NOW + 31 * 60, 3100, history=flat)
    assert [one.kind for one in diagnose(late).findings] == ["stalled"]
    assert diagnose(replace(late, state="finished")).findings == ()
    assert diagnose(replace(late, version=1000)).findings == (), "it has hardly moved"
    assert diagnose(replace(late, time=NOW + 15 * 60)).findings == ()


def classes(*parts: float, of: int = 100) -> EvaluationHistory:
    """After 40 evaluations, one each 50 updates, with these parts of the classes right."""
    return evaluated(EvaluationHistory(), 40, *parts, of=of)


def evaluated(course: EvaluationHistory, times: int, *parts: float, of: int = 100) -> EvaluationHistory:
    reported = tuple((round(part * of), of) for part in parts)
    for _ in range(times):
        version = 50 * course.count
        course = course.with_evaluation(
            Evaluation(version, NOW, 0.5, course.count / 1000, 0, 0, {}, reported), None
        )
    return course


LOST = (0.0, 0.9, 0.9, 0.02, 0.8)


def test_classes_of_which_nothing_is_right_are_named() -> None:
    (one,) = findings(RunStatus(NOW, 2000, history=classes(*LOST)))
    assert (one.kind, one.device, one.severity) == ("lost-class", None, "warning")
    assert (
        one.text
        == "the model hardly ever finds classes 0, 3: at most 2.0% of each are right, 86.7% of the others"
    )
    named = RunStatus(NOW, 2000, history=classes(*LOST), labels=("cat", "dog", "cow", "fox", "owl"))
    assert "classes cat, fox:" in findings(named)[0].text
    (one,) = findings(replace(named, history=classes(0.9, 0.9, 0.9, 0.0)))
    assert "class fox: at most 0.0% of it are right, 90.0% of the others" in one.text


@pytest.mark.parametrize(
    ("course", "why"),
    [
        (classes(0.9, 0.9, 0.9, 0.1), "it is learned a little"),
        (classes(0.0, 0.4, 0.5, 0.5), "the others are hardly learned"),
        (classes(0.0, 0.0, 0.9), "most are not learned: the run begins"),
        (classes(0.0, 0.9, 0.9, of=9), "chance decides"),
        (evaluated(EvaluationHistory(), 40), "it knows no classes"),
        (evaluated(classes(0.9, 0.9, 0.9, 0.5), 13, *LOST[:4]), "it is not so for long"),
        (evaluated(classes(*LOST), 5, 0.9, 0.9, 0.9, 0.9, 0.9), "it is over"),
    ],
)
def test_classes_that_are_not_lost(course: EvaluationHistory, why: str) -> None:
    assert kinds(RunStatus(NOW, 50 * course.count, history=course)) == [], why


def test_rare_classes_are_no_fault() -> None:
    course = EvaluationHistory()
    for n in range(40):
        reported = ((900, 1000), (900, 1000), (0, 100))
        course = course.with_evaluation(Evaluation(50 * n, NOW, 0.5, n / 1000, 0, 0, {}, reported), None)
    assert kinds(RunStatus(NOW, 2000, history=course)) == []


def test_each_device_has_some_updates_before_a_class_is_lost() -> None:
    devices = tuple(DeviceStatus(f"pi-{n}", True) for n in range(200))
    status = RunStatus(NOW, 2000, history=classes(*LOST), devices=devices)
    assert kinds(status) == []
    assert kinds(replace(status, devices=devices[:150])) == [("lost-class", None)]


def test_a_class_that_comes_back_a_little_is_still_lost() -> None:
    course = classes(*LOST)
    before = lasting(RunStatus(NOW, 2000, history=course))
    better = evaluated(course, 5, 0.15, 0.9, 0.9, 0.9, 0.9)
    assert "class 0:" in lasting(RunStatus(NOW + LONG, 2300, history=better), before).findings[0].text
    found = evaluated(course, 5, 0.2, 0.9, 0.9, 0.9, 0.9)
    assert kinds(RunStatus(NOW + LONG, 2300, history=found), before) == []


def test_the_device_that_seems_to_hold_a_lost_class_is_named() -> None:
    others = [DeviceStatus(f"pi-{n}", True, averages=USUAL, interval=1.0) for n in range(4)]
    holder = DeviceStatus("pi-4", True, averages=AgreementAverages(30, 0.1, 4.0, 0.5, 3.7), interval=10.0)
    status = RunStatus(NOW, 2000, history=classes(*LOST), devices=(*others, holder))
    (one,) = [one for one in findings(status) if one.kind == "lost-class"]
    assert "; pi-4 seems to hold them: its loss is 4 where 0.3 is usual" in one.text
    assert "it sends an update in 10 s where 1 s is usual" in one.text
    few = replace(status, devices=(*others[:2], holder))
    assert "seems" not in findings(few)[0].text
    alike = replace(status, devices=(*others, replace(others[0], name="pi-4")))
    assert "seems" not in findings(alike)[0].text


def judging(*accuracies: float, evaluations: int = 3) -> RunStatus:
    each = enumerate(accuracies)
    devices = (DeviceStatus(f"pi-{n}", True, accuracy=one, evaluations=evaluations) for n, one in each)
    return RunStatus(NOW, devices=tuple(devices))


def test_a_device_whose_own_data_the_model_does_not_know() -> None:
    wrong = judging(0.9, 0.8, 0.9, 0.44, 0.9)
    (one,) = findings(wrong)
    assert (one.kind, one.device) == ("lost-device", "pi-3")
    assert "right about 44.0% of its own data, and 90.0% is usual" in one.text
    before = lasting(wrong)
    assert kinds(judging(0.9, 0.8, 0.9, 0.53, 0.9), before) == [("lost-device", "pi-3")]
    assert kinds(judging(0.9, 0.8, 0.9, 0.55, 0.9), before) == []


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (judging(0.9, 0.8, 0.9, 0.46, 0.9), "it is a little behind"),
        (judging(0.9, 0.9, 0.1), "they are too few"),
        (judging(0.4, 0.4, 0.5, 0.1, 0.5), "nobody's data are learned"),
        (judging(0.9, 0.8, 0.9, 0.4, 0.9, evaluations=2), "its evaluation may be of the first model"),
    ],
)
def test_a_device_whose_data_the_model_knows_as_well(status: RunStatus, why: str) -> None:
    assert kinds(status) == [], why


def test_who_loses_a_class_does_not_overfit() -> None:
    def after(reported: tuple[tuple[int, int], ...]) -> EvaluationHistory:
        made = EvaluationHistory()
        for n in range(40):
            test, training = 0.5 + abs(n - 20) / 40, 1 - n / 45
            made = made.with_evaluation(
                Evaluation(n * 50, NOW + n, test, n / 1000, 0, 0, {}, reported), training
            )
        return made

    every, one = ((90, 100), (90, 100), (90, 100)), ((90, 100), (90, 100), (0, 100))
    assert kinds(RunStatus(NOW + 41, 2000, history=after(every))) == [("overfitting", None)]
    assert kinds(RunStatus(NOW + 41, 2000, history=after(one))) == [("lost-class", None)]


def test_a_device_of_another_protocol_is_named_at_once() -> None:
    status = RunStatus(NOW, outdated=(("pi-7", "the server speaks protocol 2, not 1"),))
    (found,) = diagnose(status, NOTHING).findings
    assert (found.kind, found.device, found.severity) == ("outdated", "pi-7", "warning")
    assert found.text == "it cannot join: the server speaks protocol 2, not 1"
