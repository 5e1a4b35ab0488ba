"""The lowest priority: whatever else wants the processor or the disk goes first."""

import logging
import os

log = logging.getLogger(__name__)

_NICEST = 19

_ALONE = "/proc/self/autogroup"
"""Where the kernel keeps the priority of a session among others, if it groups by sessions."""


def give_way() -> None:
    """Run this process at the lowest priority from now on, and whatever it starts. What the system will not
    have is left as it is. Nothing of it can be undone without privileges.

    Linux: nice 19, which is 15 of 1,024 parts beside a process of the usual priority, and batch scheduling,
    which never interrupts another. The priority of reads and writes follows from nice. Not SCHED_IDLE: of 3
    parts a busy machine leaves too little to answer the server in time.
    """
    try:
        os.nice(_NICEST)
        if hasattr(os, "sched_setscheduler"):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        if hasattr(os, "getsid") and os.getsid(0) == os.getpid():  # else it is others' session, too
            with open(_ALONE, "w") as file:
                file.write(str(_NICEST))
    except (AttributeError, OSError) as error:
        log.debug("priority: %s", error)
