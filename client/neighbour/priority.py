"""Sets the lowest priority for computing: other programs get the processor and the disk first."""

import logging
import os
import threading
from pathlib import Path

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
