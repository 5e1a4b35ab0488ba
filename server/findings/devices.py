"""Rules about one device alone."""

from collections.abc import Callable, Iterator
from math import inf
from statistics import median, median_low
from typing import NamedTuple

from edgeflock.server.findings.status import DeviceStatus, Rule, RunStatus, Sign, Subjects
from edgeflock.shared.protocol.frames import GATEWAY_LOST, FindingKind, Severity

_SILENT_SECONDS = 30.0
"""Seconds of unusual silence after which a device is reported: shorter ones are a bad connection."""

_CHECK_DEVICE = "look whether it has power and a network, and at its own log"
_REMEDIES = {
    GATEWAY_LOST: "look whether the gateway runs, then whether the device has power and a network",
    "killed": _CHECK_DEVICE,
    "timed out": _CHECK_DEVICE,
    "error": "its own log says what failed: mend that, and start it again",
    "refused": "mend what it was refused for, which its own log and the server's have, and start it again",
}
"""The kinds of end, of frames.LEFT, that an owner may not know of -> the remedy."""

_REVOKED = "refused: unauthorized"
"""Of a session that was once admitted: an operator has revoked its credential."""

_REFUSED_BEGIN, _REFUSED_END, _MIN_REFUSED = 0.3, 0.1, 5
"""Refused parts of a device's updates, and their least number: a restart costs a device one or two."""

_FLAPPING_BEGIN, _FLAPPING_END = 4, 2
"""A device flaps if its session ends this often in ten minutes, until it ends less often than the second. The
bound rises by the first for each usual end: where all devices leave, the reason is a common one."""


def find_silent(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The device is connected, and nothing comes from it."""
    if status.state != "training":
        return
    for one in status.devices:
        if one.present and one.idle and one.silent_seconds >= _SILENT_SECONDS:
            remedy = "look at its log: it may hang, or wait for its data"
            if one.starved:
                remedy = "look at its stream"
            elif one.browser:
                remedy = "look at its page, which may be hidden"
            yield Sign(
                "silent", "warning", one.name,
                f"it is connected, and has sent nothing for {one.silent_seconds:,.0f} s"
                + (": it waits for samples" if one.starved else ""),
                remedy,
            )  # fmt: skip


def find_gone(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The device left, but not because its work was done or its owner wanted it."""
    if status.state != "training":
        return
    for one in status.devices:
        reason = one.leave_reason or ""
        kind = GATEWAY_LOST if reason.startswith(GATEWAY_LOST) else reason.partition(":")[0]
        remedy = _REMEDIES.get(kind)
        if remedy and reason != _REVOKED and not one.present and one.silent_seconds >= _SILENT_SECONDS:
            yield Sign("gone", "warning", one.name, f"it left: {reason}", remedy)


def find_refused(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """Many of the device's updates are refused. If this is so for most devices, none of them is blamed."""
    judged = [one for one in _present(status) if one.refused_updates >= _MIN_REFUSED]
    minimum = _REFUSED_END if ("refused", None) in active else _REFUSED_BEGIN
    many = [one for one in judged if one.refused_share >= minimum]
    if len(judged) > 1 and 2 * len(many) > len(list(_present(status))):
        yield Sign(
            "refused", "warning", None,
            f"{median(one.refused_share for one in many):.0%} of most devices' recent updates were refused",
            "the events say why; if the steps are too large, lower coordination.learning_rate",
        )  # fmt: skip
        return
    for one in judged:
        minimum = _REFUSED_END if ("refused", one.name) in active else _REFUSED_BEGIN
        if one.refused_share >= minimum:
            yield Sign(
                "refused", "warning", one.name,
                f"{one.refused_share:.0%} of its recent updates were refused, {one.refused_updates:,} in all",
                "the events say why; if they are base-expired, it is too slow: raise coordination.window",
            )  # fmt: skip


def find_flapping(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The device connects and leaves again and again."""
    if status.state != "training" or not status.devices:
        return
    usual = median_low(one.departures for one in status.devices) if len(status.devices) > 1 else 0
    for one in status.devices:
        minimum = _FLAPPING_END if ("flapping", one.name) in active else _FLAPPING_BEGIN
        if one.departures >= minimum + _FLAPPING_BEGIN * usual:
            yield Sign(
                "flapping", "warning", one.name,
                f"it left {one.departures} times within ten minutes"
                + (f", last: {one.leave_reason}" if one.leave_reason else ""),
                "check its network, power supply and log; each return costs a download of the whole model",
            )  # fmt: skip


class _Condition(NamedTuple):
    """A condition of a device that is connected, which a number tells."""

    kind: FindingKind
    value: Callable[[DeviceStatus], float | None]
    begin: float
    """The condition begins when the value has reached this, and ends when it is below"""
    end: float
    text: Callable[[DeviceStatus], str]
    remedy: str
    critical: float = inf

    def find(self, status: RunStatus, active: Subjects) -> Iterator[Sign]:
        for one in _present(status):
            minimum = self.end if (self.kind, one.name) in active else self.begin
            if (value := self.value(one)) is not None and value >= minimum:
                severity: Severity = "critical" if value >= self.critical else "warning"
                yield Sign(self.kind, severity, one.name, self.text(one), self.remedy)


def _measure_unfit(one: DeviceStatus) -> float:
    return one.unfit_samples / one.samples if one.samples else 0.0


_CONDITIONS = (
    _Condition(
        "disk", lambda one: one.unwritten_samples, 1, 1,
        lambda one: f"its disk is full: {one.unwritten_samples:,} recent samples "
        "were dropped instead of stored",
        "make room on the device's disk (client.buffer), or leave client.buffer out",
    ),
    _Condition(
        "disk", lambda one: one.spool_fails and not one.unwritten_samples, 1, 1,
        lambda one: "it cannot write to its disk: if its client ends, it loses and recomputes the "
        "pending update",
        "make room on the device's disk, or name another folder (client.directory)",
    ),
    _Condition(
        "unfit", _measure_unfit, 0.05, 0.02,
        lambda one: f"{_measure_unfit(one):.0%} of its recent samples were unfit for training, and were "
        "set aside",
        "its quarantine file (in client.directory) says what is wrong with them: mend their source",
    ),
    _Condition(  # samples lost to a full disk are another finding
        "dropping", lambda one: one.recent_drops, 1, 1,
        lambda one: f"its buffer had no room for {one.recent_drops:,} recent samples, "
        f"{one.total_drops:,} in all",
        "raise its client.batch_max or client.buffer_bytes, or keep the buffer on disk",
    ),
    _Condition(
        "held-out", lambda one: one.held_out_rows, 1, 1,
        lambda one: f"it trains on about {one.held_out_rows:,} held-out rows, so evaluations are too good",
        "give it data of its own (client.data), without these rows, and begin another run",
    ),
    _Condition(  # a Raspberry Pi slows down at 80 degrees, and more at 85
        "hot", lambda one: one.temperature, 80.0, 75.0,
        lambda one: f"its processor is at {one.temperature:.0f} degrees Celsius",
        "cool it, or pause it", critical=85.0,
    ),
    _Condition(
        "throttled", lambda one: one.throttled, 1, 1,
        lambda one: "its processor runs slower than it could, because it is hot or its power supply is weak",
        "cool it, and give it a stronger power supply",
    ),
    _Condition(
        "undervoltage", lambda one: one.undervoltage, 1, 1,
        lambda one: "its power supply is too weak: it may stop at any moment, and its SD card may be damaged",
        "give it a stronger power supply and a shorter cable",
    ),
    _Condition(  # the telemetry may be five seconds old, and a slow connection adds as much
        "clock", lambda one: None if one.clock_error is None else abs(one.clock_error), 60.0, 30.0,
        lambda one: f"its clock is {abs(one.clock_error or 0.0):,.0f} s "
        + ("ahead" if (one.clock_error or 0.0) > 0 else "behind"),
        "let it set its clock (timedatectl set-ntp true): TLS and its logs depend on it",
    ),
)  # fmt: skip


def find_outdated(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The device's version of Edgeflock speaks another protocol, so it was refused."""
    for name, reason in status.outdated:
        yield Sign(
            "outdated", "warning", name, f"it cannot join: {reason}",
            "install the server's version of Edgeflock on it",
        )  # fmt: skip


def _present(status: RunStatus) -> Iterator[DeviceStatus]:
    return (one for one in status.devices if one.present)


RULES: tuple[Rule, ...] = (
    find_silent, find_gone, find_flapping, find_refused, *(one.find for one in _CONDITIONS), find_outdated,
)  # fmt: skip
