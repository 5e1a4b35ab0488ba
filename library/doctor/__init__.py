"""What keeps this machine from taking part, or a server from serving, and what to do about it.

`examined_device` and `examined_server` look at everything once and say a Finding each (finding.py); `bundled`
puts that, settings, versions, log and audit into one file that holds no secret (report.py). Each check is a
function of what it is given: machine.py of this machine, files.py of files, packages.py of what is installed,
line.py of the line to the server. May import projects, server, client and shared.
"""

from edgeflock.doctor.finding import CheckResult
from edgeflock.doctor.patients import examined_device, examined_server
from edgeflock.doctor.report import bundled

__all__ = ["CheckResult", "bundled", "examined_device", "examined_server"]
