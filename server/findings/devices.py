"""Rules about one device alone."""

from collections.abc import Callable, Iterator
from statistics import median, median_low

from edgeflock.server.findings.picture import Picture, Portrait
from edgeflock.server.findings.signs import Before, Sign
from edgeflock.shared.protocol.frames import FindingKind

_SILENT = 30.0
"""Seconds of unusual silence after which a device is reported: shorter ones are a line that stutters."""

_LOST = "look whether it has power and a network, and at its own log"
_GONE = {
    "killed": _LOST,
    "timed out": _LOST,
    "error": "its own log says what failed: mend that, and start it again",
    "refused": "mend what it was refused for, which its own log and the server's have, and start it again",
}
"""The kinds of end, of frames.LEFT, that an owner may not know of -> the remedy."""

_OFTEN, _SELDOM, _LEAST_REFUSED = 0.3, 0.1, 5
"""Refused parts of a device's updates, and their least number: a restart costs a device one or two."""

_LEFT, _STAYED = 4, 2
"""A device flaps if its session ends this often in ten minutes, until it ends less often than the second. The
bound rises by the first for each usual end: where all devices leave, the reason is a common one."""

_UNFIT, _FIT = 0.05, 0.02
"""Parts of the samples that are unfit."""

_HOT, _COOL, _BOILING = 80.0, 75.0, 85.0
"""Degrees Celsius: a Raspberry Pi slows down at 80, and more at 85."""

_WRONG_CLOCK, _RIGHT_CLOCK = 60.0, 30.0
"""Seconds of clock error. The telemetry may be five seconds old, and a slow line adds as much."""


def silent(picture: Picture, before: Before) -> Iterator[Sign]:
    """The device is connected, and nothing comes from it."""
    if picture.state != "training":
        return
    for one in picture.devices:
        if one.here and one.idle and one.silent >= _SILENT:
            yield Sign(
                "silent", "warning", one.name,
                f"it is connected, and has sent nothing for {one.silent:,.0f} s"
                + (": it waits for samples" if one.starved else ""),
                "look at its stream" if one.starved else "look at its log: it may hang, or wait for its data",
            )  # fmt: skip


def gone(picture: Picture, before: Before) -> Iterator[Sign]:
    """The device left, but not because its work was done or its owner wanted it."""
    if picture.state != "training":
        return
    for one in picture.devices:
        if not one.here and one.why_left is not None and (why := one.why_left.partition(":")[0]) in _GONE:
            if one.silent >= _SILENT:
                yield Sign(
                    "gone", "warning", one.name, f"it left: {one.why_left}",
                    _GONE[why],
                )  # fmt: skip


def refused(picture: Picture, before: Before) -> Iterator[Sign]:
    """Many of the device's updates are refused. If this is so for most devices, none of them is blamed."""
    known = [one for one in _here(picture) if one.refused >= _LEAST_REFUSED]
    least = _SELDOM if ("refused", None) in before else _OFTEN
    many = [one for one in known if one.refusing >= least]
    if len(known) > 1 and 2 * len(many) > len(list(_here(picture))):
        yield Sign(
            "refused", "warning", None,
            f"of most devices {median(one.refusing for one in many):.0%} of the updates of late were refused",
            "the events say why; if they would go too far, lower coordination.learning_rate",
        )  # fmt: skip
        return
    for one in known:
        most = _SELDOM if ("refused", one.name) in before else _OFTEN
        if one.refusing >= most:
            yield Sign(
                "refused", "warning", one.name,
                f"{one.refusing:.0%} of its updates of late were refused, {one.refused:,} in all",
                "the events say why; if they are base-expired, it is too slow: raise coordination.window",
            )  # fmt: skip


def flapping(picture: Picture, before: Before) -> Iterator[Sign]:
    """The device connects and leaves again and again."""
    if picture.state != "training" or not picture.devices:
        return
    usual = median_low(one.left for one in picture.devices) if len(picture.devices) > 1 else 0
    for one in picture.devices:
        least = _STAYED if ("flapping", one.name) in before else _LEFT
        if one.left >= least + _LEFT * usual:
            yield Sign(
                "flapping", "warning", one.name,
                f"it left {one.left} times within ten minutes"
                + (f", last: {one.why_left}" if one.why_left else ""),
                "look at its network, its supply and its own log; each time it pulls the model again",
            )  # fmt: skip


def full(picture: Picture, before: Before) -> Iterator[Sign]:
    """The disk of the device is full."""
    for one in _here(picture):
        if one.unwritten > 0:
            yield Sign(
                "disk", "warning", one.name,
                f"its disk is full: {one.unwritten:,} samples of late were dropped instead of kept",
                "make room on the device's disk (client.buffer), or leave client.buffer out",
            )  # fmt: skip
        elif one.spool_fails:
            yield Sign(
                "disk", "warning", one.name,
                "its disk takes nothing: an update on its way is lost if the device ends, and computed again",
                "make room on the device's disk, or name another folder (client.directory)",
            )  # fmt: skip


def unfit(picture: Picture, before: Before) -> Iterator[Sign]:
    """Much of the device's stream is unfit for training."""
    for one in _here(picture):
        part = one.unfit / one.came if one.came else 0.0
        if part >= (_FIT if ("unfit", one.name) in before else _UNFIT):
            yield Sign(
                "unfit", "warning", one.name,
                f"{part:.0%} of its samples of late were not fit for training, and were set aside",
                "its quarantine file says what is wrong with them (client.quarantine): mend their source",
            )  # fmt: skip


def dropping(picture: Picture, before: Before) -> Iterator[Sign]:
    """The device's stream is faster than the device. Samples lost to a full disk are another finding."""
    for one in _here(picture):
        if one.dropped > 0:
            yield Sign(
                "dropping", "warning", one.name,
                f"its buffer had no room for {one.dropped:,} samples of late, {one.drops:,} in all",
                "raise its client.batch_max or client.buffer_bytes, or keep the buffer on disk",
            )  # fmt: skip


def held_out(picture: Picture, before: Before) -> Iterator[Sign]:
    """The device trains on the held-out data."""
    for one in _here(picture):
        if one.held_out:
            yield Sign(
                "held-out", "warning", one.name,
                f"it trains on about {one.held_out:,} rows of the held-out data: evaluations are too good",
                "give it data of its own (client.data), without these rows, and begin another run",
            )  # fmt: skip


def hot(picture: Picture, before: Before) -> Iterator[Sign]:
    """The device is hot and will slow down."""
    for one in _here(picture):
        bound = _COOL if ("hot", one.name) in before else _HOT
        if one.temperature is not None and one.temperature >= bound:
            yield Sign(
                "hot", "critical" if one.temperature >= _BOILING else "warning", one.name,
                f"its processor has {one.temperature:.0f} degrees Celsius", "give it air, or pause it",
            )  # fmt: skip


def _flag(
    kind: FindingKind, of: Callable[[Portrait], bool], text: str, remedy: str
) -> Callable[[Picture, Before], Iterator[Sign]]:
    """Return a rule for a condition that the device itself reports."""

    def rule(picture: Picture, before: Before) -> Iterator[Sign]:
        for one in _here(picture):
            if of(one):
                yield Sign(kind, "warning", one.name, text, remedy)

    return rule


throttled = _flag(
    "throttled",
    lambda one: one.throttled,
    "its processor runs slower than it could, because it is hot or its supply is weak",
    "give it air and a stronger supply",
)

undervoltage = _flag(
    "undervoltage",
    lambda one: one.undervoltage,
    "its supply is too weak: it may stop at any moment, and its card may suffer",
    "give it a stronger supply and a shorter cable",
)


def clock(picture: Picture, before: Before) -> Iterator[Sign]:
    """The device's clock is wrong; certificates and logs depend on it."""
    for one in _here(picture):
        bound = _RIGHT_CLOCK if ("clock", one.name) in before else _WRONG_CLOCK
        if one.clock is not None and abs(one.clock) >= bound:
            yield Sign(
                "clock", "warning", one.name,
                f"its clock is {abs(one.clock):,.0f} s {'ahead' if one.clock > 0 else 'behind'}",
                "let it set its clock (timedatectl set-ntp true): TLS and its logs go by it",
            )  # fmt: skip


def _here(picture: Picture) -> Iterator[Portrait]:
    return (one for one in picture.devices if one.here)


RULES: tuple[Callable[[Picture, Before], Iterator[Sign]], ...] = (
    silent, gone, flapping, refused, full, unfit, dropping, held_out, hot, throttled, undervoltage, clock,
)  # fmt: skip
