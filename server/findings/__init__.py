"""Findings: what is wrong with a run or with a device."""

from edgeflock.server.findings.agreement import AgreementAverages, AgreementTracker
from edgeflock.server.findings.history import EvaluationHistory
from edgeflock.server.findings.rules import Diagnosis, diagnose
from edgeflock.server.findings.status import INTERVAL, REMEDY, DeviceStatus, Divergence, RunStatus, Targets
