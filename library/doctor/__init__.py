"""Checks of a device's or a server's machine, each with a remedy.

`check_device` and `check_server` run all checks once and yield a CheckResult for each (finding.py).
`build_report` puts results, settings, versions, log and audit into one file without secrets (report.py). Each
check is a function of its arguments: machine.py has those of this machine and its packages, files.py of
files, connection.py of the connection. May import projects, server, client and shared.
"""

from edgeflock.doctor.checks import check_device, check_server
from edgeflock.doctor.finding import CheckResult
from edgeflock.doctor.report import build_report
