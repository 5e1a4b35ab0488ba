"""The lowest priority for what computes: whatever else wants the processor or the disk goes first."""

import logging
import os
import threading
from pathlib import Path

log = logging.getLogger(__name__)

_NICEST = 19

_NICE = 10
"""Of the thread that speaks with the server: 110 parts of 1,024 beside a process of the usual priority."""

_THREADS = Path("/proc/self/task")

_ALONE = "/proc/self/autogroup"
"""Where the kernel keeps the priority of a session among others, if it groups by sessions."""


def give_way() -> None:
    """Run this process at the lowest priority from now on, and whatever it starts; the main thread, which
    speaks with the server, at a low one. What the system will not have is left as it is. Nothing of it can be
    undone without privileges.

    Linux: nice 19, which is 15 of 1,024 parts beside a process of the usual priority, and batch scheduling,
    which never interrupts another. The priority of reads and writes follows from nice. Not SCHED_IDLE: of 3
    parts a busy machine leaves too little. Elsewhere the process has one priority for all its threads.
    """
    try:
        if _THREADS.exists():
            for thread in map(int, os.listdir(_THREADS)):
                _lower(thread)
        else:
            os.nice(_NICEST)
        if hasattr(os, "getsid") and os.getsid(0) == os.getpid():  # else it is others' session, too
            with open(_ALONE, "w") as file:
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
