"""What is wrong with a run, and with whom: health.

`Agreement` follows how each device's updates go with the others', some microseconds an update. `findings` is
a pure function: a `Picture` of what the server knows, and what was found before, to what is found now.
Servers take a picture every few seconds (operations/health.py), emulated fleets by virtual time.
Imports the descent's Step only.
"""

from edgeflock.server.findings.agreement import Agreement, Seen
from edgeflock.server.findings.course import Course
from edgeflock.server.findings.picture import EVERY, Blamed, Picture, Portrait
from edgeflock.server.findings.rules import changes, findings
from edgeflock.server.findings.targets import REMEDY, Targets

__all__ = [
    "EVERY", "REMEDY", "Agreement", "Blamed", "Course", "Picture", "Portrait", "Seen", "Targets", "changes",
    "findings",
]  # fmt: skip
