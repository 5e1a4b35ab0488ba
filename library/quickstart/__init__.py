"""A whole fleet on one machine: a server and client processes on loopback, over real sockets.

plan.py says what is asked for, processes.py starts and ends processes, shown.py prints; run.py is the way
through. Outside, only Plan and run_quickstart are used. Its processes it knows as anybody would, by their
command line and the server's HTTP: it may import watching.status, results.outcomes, numbers and
edgeflock.shared, neither server nor client.
"""

from edgeflock.quickstart.plan import QuickstartPlan
from edgeflock.quickstart.run import run_quickstart

__all__ = ["QuickstartPlan", "run_quickstart"]
