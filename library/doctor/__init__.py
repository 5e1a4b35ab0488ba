"""Checks of a device's or a server's machine, each with a remedy.

`examined_device` and `examined_server` run all checks once and yield a CheckResult for each (finding.py).
`bundled` puts them, settings, versions, log and audit into one file without secrets (report.py). Each check
is a function of its arguments: machine.py has those of this machine, files.py of files, packages.py of
packages, line.py of the connection. May import projects, server, client and shared.
"""

from edgeflock.doctor.finding import CheckResult
from edgeflock.doctor.patients import examined_device, examined_server
from edgeflock.doctor.report import bundled

__all__ = ["CheckResult", "bundled", "examined_device", "examined_server"]
