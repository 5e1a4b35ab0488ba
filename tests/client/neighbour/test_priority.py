"""The lowest priority, in a process that has nothing to lose."""

import os
import subprocess
import sys

import pytest

from edgeflock.client.neighbour import lower_priority

SCRIPT = """
import os
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from edgeflock.client.neighbour.limits import lower_priority

def priority():
    return os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0) == os.SCHED_BATCH

def wait():
    over.wait()
    print(*priority())

over = Event()
earlier = Thread(target=wait)
earlier.start()
with ThreadPoolExecutor(1, initializer=lower_priority) as computing:
    print(*computing.submit(priority).result())
over.set()
earlier.join()
print(*priority())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system has other priorities")
def test_a_process_gives_way() -> None:
    """What computes, and what it had begun before; less so the thread that speaks with the server."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["19 True", "19 True", "10 False"]


@pytest.mark.parametrize("error", [PermissionError(1, "no"), AttributeError("nice")])
def test_a_system_that_will_not_have_it_is_left_alone(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> int:
        raise error

    monkeypatch.setattr(os, "nice", refuse)
    monkeypatch.setattr(os, "setpriority", refuse)
    lower_priority()
