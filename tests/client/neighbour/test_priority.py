"""The lowest priority, in a process that has nothing to lose."""

import os
import subprocess
import sys

import pytest

from edgeflock.client.neighbour import give_way

SCRIPT = """
import os
from edgeflock.client.neighbour.priority import give_way
give_way()
give_way()
print(os.nice(0), os.sched_getscheduler(0) == os.SCHED_BATCH)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system has other priorities")
def test_a_process_gives_way() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["19", "True"]


@pytest.mark.parametrize("error", [PermissionError(1, "no"), AttributeError("nice")])
def test_a_system_that_will_not_have_it_is_left_alone(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(by: int) -> int:
        raise error

    monkeypatch.setattr(os, "nice", refuse)
    give_way()
