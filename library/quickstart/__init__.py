"""A complete fleet on one machine: a server and client processes on loopback, over real sockets.

plan.py has the options. run.py starts and ends the processes, and prints.
Other packages use only QuickstartPlan and run_quickstart. It uses its processes by their command line and the
server's HTTP interface. It may import tui.sources, results.outcomes, numbers and edgeflock.shared,
but neither server nor client.
"""

from edgeflock.quickstart.plan import QuickstartPlan
from edgeflock.quickstart.run import run_quickstart
