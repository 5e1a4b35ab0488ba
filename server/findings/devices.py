"""Rules about one device alone."""

from collections.abc import Callable, Iterator
from statistics import median, median_low

from edgeflock.server.findings.status import DeviceStatus, Rule, RunStatus, Sign, Subjects
from edgeflock.shared.protocol.frames import FindingKind

_SILENT_SECONDS = 30.0
"""Seconds of unusual silence after which a device is reported: shorter ones are a bad connection."""

_CHECK_DEVICE = "look whether it has power and a network, and at its own log"
_REMEDIES = {
    "killed": _CHECK_DEVICE,
    "timed out": _CHECK_DEVICE,
    "error": "its own log says what failed: mend that, and start it again",
    "refused": "mend what it was refused for, which its own log and the server's have, and start it again",
}
"""The kinds of end, of frames.LEFT, that an owner may not know of -> the remedy."""

_REFUSED_BEGIN, _REFUSED_END, _MIN_REFUSED = 0.3, 0.1, 5
"""Refused parts of a device's updates, and their least number: a restart costs a device one or two."""

_FLAPPING_BEGIN, _FLAPPING_END = 4, 2
"""A device flaps if its session ends this often in ten minutes, until it ends less often than the second. The
bound rises by the first for each usual end: where all devices leave, the reason is a common one."""

_UNFIT_BEGIN, _UNFIT_END = 0.05, 0.02
"""Parts of the samples that are unfit."""

_HOT_BEGIN, _HOT_END, _HOT_CRITICAL = 80.0, 75.0, 85.0
"""Degrees Celsius: a Raspberry Pi slows down at 80, and more at 85."""

_CLOCK_BEGIN, _CLOCK_END = 60.0, 30.0
"""Seconds of clock error. The telemetry may be five seconds old, and a slow connection adds as much."""


def find_silent(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The device is connected, and nothing comes from it."""
    if status.state != "training":
        return
    for one in status.devices:
        if one.present and one.idle and one.silent_seconds >= _SILENT_SECONDS:
            yield Sign(
                "silent", "warning", one.name,
                f"it is connected, and has sent nothing for {one.silent_seconds:,.0f} s"
                + (": it waits for samples" if one.starved else ""),
                "look at its stream" if one.starved else "look at its log: it may hang, or wait for its data",
            )  # fmt: skip


def find_gone(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The device left, but not because its work was done or its owner wanted it."""
    if status.state != "training":
        return
    for one in status.devices:
        if (
            not one.present
            and one.leave_reason is not None
            and (kind := one.leave_reason.partition(":")[0]) in _REMEDIES
        ):
            if one.silent_seconds >= _SILENT_SECONDS:
                yield Sign(
                    "gone", "warning", one.name, f"it left: {one.leave_reason}",
                    _REMEDIES[kind],
                )  # fmt: skip


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


def find_full_disk(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The disk of the device is full."""
    for one in _present(status):
        if one.unwritten_samples > 0:
            yield Sign(
                "disk", "warning", one.name,
                f"its disk is full: {one.unwritten_samples:,} recent samples were dropped instead of stored",
                "make room on the device's disk (client.buffer), or leave client.buffer out",
            )  # fmt: skip
        elif one.spool_fails:
            yield Sign(
                "disk", "warning", one.name,
                "it cannot write to its disk: if its client ends, it loses and recomputes the pending update",
                "make room on the device's disk, or name another folder (client.directory)",
            )  # fmt: skip


def find_unfit(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """Much of the device's stream is unfit for training."""
    for one in _present(status):
        part = one.unfit_samples / one.samples if one.samples else 0.0
        if part >= (_UNFIT_END if ("unfit", one.name) in active else _UNFIT_BEGIN):
            yield Sign(
                "unfit", "warning", one.name,
                f"{part:.0%} of its recent samples were unfit for training, and were set aside",
                "its quarantine file says what is wrong with them (client.quarantine): mend their source",
            )  # fmt: skip


def find_dropping(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The device's stream is faster than the device. Samples lost to a full disk are another finding."""
    for one in _present(status):
        if one.recent_drops > 0:
            yield Sign(
                "dropping", "warning", one.name,
                f"its buffer had no room for {one.recent_drops:,} recent samples, {one.total_drops:,} in all",
                "raise its client.batch_max or client.buffer_bytes, or keep the buffer on disk",
            )  # fmt: skip


def find_held_out(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The device trains on the held-out data."""
    for one in _present(status):
        if one.held_out_rows:
            yield Sign(
                "held-out", "warning", one.name,
                f"it trains on about {one.held_out_rows:,} held-out rows, so evaluations are too good",
                "give it data of its own (client.data), without these rows, and begin another run",
            )  # fmt: skip


def find_hot(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The device is hot and will slow down."""
    for one in _present(status):
        minimum = _HOT_END if ("hot", one.name) in active else _HOT_BEGIN
        if one.temperature is not None and one.temperature >= minimum:
            yield Sign(
                "hot", "critical" if one.temperature >= _HOT_CRITICAL else "warning", one.name,
                f"its processor is at {one.temperature:.0f} degrees Celsius", "cool it, or pause it",
            )  # fmt: skip


def _flag(kind: FindingKind, is_set: Callable[[DeviceStatus], bool], text: str, remedy: str) -> Rule:
    """Return a rule for a condition that the device itself reports."""

    def rule(status: RunStatus, active: Subjects) -> Iterator[Sign]:
        for one in _present(status):
            if is_set(one):
                yield Sign(kind, "warning", one.name, text, remedy)

    return rule


find_throttled = _flag(
    "throttled",
    lambda one: one.throttled,
    "its processor runs slower than it could, because it is hot or its power supply is weak",
    "cool it, and give it a stronger power supply",
)

find_undervoltage = _flag(
    "undervoltage",
    lambda one: one.undervoltage,
    "its power supply is too weak: it may stop at any moment, and its SD card may be damaged",
    "give it a stronger power supply and a shorter cable",
)


def find_clock(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The device's clock is wrong; certificates and logs depend on it."""
    for one in _present(status):
        minimum = _CLOCK_END if ("clock", one.name) in active else _CLOCK_BEGIN
        if one.clock_error is not None and abs(one.clock_error) >= minimum:
            yield Sign(
                "clock", "warning", one.name,
                f"its clock is {abs(one.clock_error):,.0f} s {'ahead' if one.clock_error > 0 else 'behind'}",
                "let it set its clock (timedatectl set-ntp true): TLS and its logs depend on it",
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
    find_silent, find_gone, find_flapping, find_refused, find_full_disk, find_unfit, find_dropping,
    find_held_out, find_hot, find_throttled, find_undervoltage, find_clock, find_outdated,
)  # fmt: skip
