"""Findings: what is wrong with a run or with a device."""

from edgeflock.server.findings.agreement import AgreementAverages, AgreementTracker
from edgeflock.server.findings.course import EvaluationHistory
from edgeflock.server.findings.picture import EVERY, Divergence, Picture, Portrait
from edgeflock.server.findings.rules import Diagnosis, changes, diagnose
from edgeflock.server.findings.targets import REMEDY, Targets

__all__ = [
    "EVERY", "REMEDY", "AgreementAverages", "AgreementTracker", "Diagnosis", "Divergence",
    "EvaluationHistory", "Picture", "Portrait", "Targets", "changes", "diagnose",
]  # fmt: skip
