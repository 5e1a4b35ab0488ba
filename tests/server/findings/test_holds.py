"""How long a cause lasts before its finding begins, and is gone before the finding is over."""

from dataclasses import replace

from edgeflock.server.findings import (
    AgreementAverages,
    DeviceStatus,
    Diagnosis,
    RunStatus,
    diagnose,
)
from edgeflock.shared.protocol.frames import Finding

NOW = 1e9
USUAL = AgreementAverages(50, 0.6, 0.3, 0.0)
LARGE, ALMOST, WELL = (USUAL._replace(norm=norm) for norm in (4.0, 1.8, 0.0))
"""Of updates: 55 times, six times and once the usual size."""


def norms(*seen: AgreementAverages) -> list[RunStatus]:
    """One every two seconds."""
    others = tuple(DeviceStatus(f"pi-{n}", True, averages=USUAL) for n in range(4))
    return [
        RunStatus(NOW + 2 * look, devices=(*others, DeviceStatus("pi-4", True, averages=one)))
        for look, one in enumerate(seen)
    ]


def watched(statuses: list[RunStatus]) -> tuple[list[tuple[int, Finding]], list[tuple[int, Finding]]]:
    """((look, finding) that begins, (look, finding) that is over)."""
    began, over, last = [], [], Diagnosis()
    for look, status in enumerate(statuses):
        last = diagnose(status, last)
        began += [(look, one) for one in last.began]
        over += [(look, one) for one in last.ended]
    return began, over


def test_a_finding_begins_after_ten_seconds_and_is_as_old_as_its_cause() -> None:
    began, over = watched(norms(WELL, *[LARGE] * 10))
    assert [(look, one.kind, one.device, one.since) for look, one in began] == [(6, "norm", "pi-4", NOW + 2)]
    assert over == []


def test_a_cause_that_goes_at_once_is_no_finding() -> None:
    assert watched(norms(*[LARGE] * 5, WELL, *[LARGE] * 5, WELL)) == ([], [])


def test_it_is_over_after_a_minute_without_its_cause() -> None:
    _, over = watched(norms(*[LARGE] * 10, *[WELL] * 40))
    assert [(look, one.since) for look, one in over] == [(40, NOW)]


def test_a_number_that_wavers_about_its_bound_is_one_finding() -> None:
    wavering = norms(*([LARGE] * 6 + [WELL] * 20 + [ALMOST] * 4) * 10)
    began, over = watched(wavering)
    assert (len(began), len(over)) == (1, 0)


def test_a_device_that_comes_and_goes_does_not_take_its_findings_along() -> None:
    there = DeviceStatus("pi", True, temperature=84.0)
    statuses = [
        RunStatus(NOW + 2 * look, devices=(replace(there, present=look % 20 < 12),)) for look in range(200)
    ]
    began, over = watched(statuses)
    assert ([one.kind for _, one in began], over) == (["hot"], [])


def test_facts_begin_at_once() -> None:
    began, _ = watched(
        [RunStatus(NOW, devices=(DeviceStatus("pi", True, held_out_rows=3, temperature=81.0),))]
    )
    assert [one.kind for _, one in began] == ["held-out", "hot"]


def test_it_keeps_its_text_while_its_cause_is_gone() -> None:
    before = diagnose(RunStatus(NOW, devices=(DeviceStatus("pi", True, temperature=81.0),)))
    after = diagnose(RunStatus(NOW + 2, devices=(DeviceStatus("pi", True, temperature=60.0),)), before)
    assert after.findings == before.findings
