"""What is wrong with a run, and with whom: health.

`AgreementTracker` compares each device's updates with those of the others, in some microseconds an update.
`diagnose` is a pure function of a `Picture` of what the server knows, and of the last `Diagnosis`.
Servers take a picture every few seconds (monitoring/health.py), emulated fleets by virtual time.
Imports the descent's Step only.
"""

from edgeflock.server.findings.agreement import AgreementAverages, AgreementTracker
from edgeflock.server.findings.course import EvaluationHistory
from edgeflock.server.findings.picture import EVERY, Divergence, Picture, Portrait
from edgeflock.server.findings.rules import Diagnosis, changes, diagnose
from edgeflock.server.findings.targets import REMEDY, Targets

__all__ = [
    "EVERY", "REMEDY", "AgreementAverages", "AgreementTracker", "Diagnosis", "Divergence",
    "EvaluationHistory", "Picture", "Portrait", "Targets", "changes", "diagnose",
]  # fmt: skip
