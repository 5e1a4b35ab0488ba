"""What is wrong with a run, and with whom: health.

`Agreement` follows how each device's updates go with the others', some microseconds an update. `diagnose` is
a pure function: a `Picture` of what the server knows, and the last `Diagnosis`, to the next one.
Servers take a picture every few seconds (operations/health.py), emulated fleets by virtual time.
Imports the descent's Step only.
"""

from edgeflock.server.findings.agreement import Agreement, Seen
from edgeflock.server.findings.course import Course
from edgeflock.server.findings.picture import EVERY, Blamed, Picture, Portrait
from edgeflock.server.findings.rules import Diagnosis, changes, diagnose
from edgeflock.server.findings.targets import REMEDY, Targets

__all__ = [
    "EVERY", "REMEDY", "Agreement", "Blamed", "Course", "Diagnosis", "Picture", "Portrait", "Seen", "Targets",
    "changes", "diagnose",
]  # fmt: skip
