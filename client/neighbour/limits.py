"""An owner's limits, 25% of a core or 50kB/s: their text, the allowance of a rate, and rests between batches.

transport/http.py limits network traffic.
"""

import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

from edgeflock.shared.errors import ConfigError

_RATE = re.compile(r"(\d+(?:\.\d+)?) ?(kB|MB)/s")
_UNITS = {"kB": 1e3, "MB": 1e6}

_MIN_SHARE, _MIN_RATE = 0.01, 1e3


def share_of(text: str) -> float | None:
    """Return 0.25 for "25%", 1.5 for "150%", and None (no limit) for "". Raises ConfigError."""
    if not text:
        return None
    number = text.removesuffix("%")
    share = float(number) / 100 if _is_number(number) else 0.0
    if not text.endswith("%") or share < _MIN_SHARE:
        raise ConfigError(
            f"client.cpu = {text!r} must be a percentage of one core, of 1% or more, such as 25% or 150%"
        )
    return share


def rate_of(text: str) -> float | None:
    """Return bytes per second: 50,000 for "50kB/s", None (no limit) for "". Raises ConfigError."""
    if not text:
        return None
    found = _RATE.fullmatch(text)
    rate = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if rate < _MIN_RATE:
        raise ConfigError(
            f"client.bandwidth = {text!r} must be 1kB/s or more, both ways together, such as 50kB/s or 2MB/s"
        )
    return rate


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


_SAVED = 0.25
"""Unspent allowance accumulates for this many seconds."""


class Allowance:
    """A rate limit that all callers share. Spending above the rate returns a time to wait.

    In any t seconds, at most rate * (t + 0.25) is spent, plus the amount of one call.
    """

    def __init__(self, rate: float, now: float) -> None:
        """Args: `rate` in any unit per second; `now` in seconds."""
        self._rate = rate
        self.begin(now)

    def begin(self, now: float) -> None:
        """Reset: nothing is spent or saved before `now`."""
        self._balance, self._updated = 0.0, now

    def spend(self, amount: float, now: float) -> float:
        """Record `amount`, spent since the last call. Return the seconds to wait until the rate covers it."""
        self._balance = min(_SAVED * self._rate, self._balance + (now - self._updated) * self._rate - amount)
        self._updated = now
        return max(0.0, -self._balance / self._rate)


class Resting:
    """Rests long enough that this process takes `share` of a core.

    It measures the processor time of all threads, not the duration of steps, which is long on a busy machine.
    It never interrupts a batch. The rest after a long batch is proportional.
    """

    def __init__(
        self,
        share: float | None,
        used: Callable[[], float] = time.process_time,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`used` returns seconds of processor time, `now` seconds. A share of None means no limit."""
        self._used, self._now = used, now
        self._allowance = None if share is None else Allowance(share, now())
        self._before = used()
        self._closed = threading.Event()

    def begin(self) -> None:
        """Reset at the start of training, so that preparation does not count."""
        self._before = self._used()
        if self._allowance is not None:
            self._allowance.begin(self._now())

    def rest(self) -> None:
        """Rest if necessary. Call it before each batch, in the computing thread."""
        if self._allowance is None:
            return
        used = self._used()
        seconds = self._allowance.spend(used - self._before, self._now())
        self._before = used
        if seconds:
            self._closed.wait(seconds)

    def close(self) -> None:
        """End the current rest and all later ones."""
        self._closed.set()


log = logging.getLogger(__name__)

_NICEST = 19

_NICE = 10
"""Nice value of the thread that communicates with the server: weight 110, against the usual 1,024."""

_THREADS = Path("/proc/self/task")

_AUTOGROUP = "/proc/self/autogroup"
"""The file with the session's priority, if the kernel schedules by sessions."""


def lower_priority() -> None:
    """Give this process and its children the lowest priority, from now on.

    The main thread, which communicates with the server, gets a low one. Settings that the system refuses are
    left unchanged. None can be undone without privileges.

    Linux: nice 19, i.e. weight 15 against the usual 1,024, and batch scheduling, which never preempts others.
    I/O priority follows from nice. SCHED_IDLE has weight 3, too little on a busy machine. Elsewhere the
    process has one priority for all its threads.
    """
    try:
        if _THREADS.exists():
            for thread in map(int, os.listdir(_THREADS)):
                _lower(thread)
        else:
            os.nice(_NICEST)
        if hasattr(os, "getsid") and os.getsid(0) == os.getpid():  # else other processes share the session
            with open(_AUTOGROUP, "w") as file:
                file.write(str(_NICEST))
    except (AttributeError, OSError) as error:
        log.debug("priority: %s", error)


def _lower(thread: int) -> None:
    """One thread of this process, unless it has ended since."""
    is_main = thread == threading.main_thread().native_id
    try:
        os.setpriority(os.PRIO_PROCESS, thread, _NICE if is_main else _NICEST)
        if not is_main:
            os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
    except ProcessLookupError:
        return
