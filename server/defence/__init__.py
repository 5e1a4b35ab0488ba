"""Defences: they decide what part of an admitted update counts if devices may be broken or hostile.

    admit -> weigh by samples -> defend -> staleness and learning rate -> optimizer

A defence is a pure function from an `AdmittedUpdate` to the part of it that counts (rules.py, by name in
`DEFENCES`). `DefenceGuard` keeps the state of defences: the usual update norms (norms.py), each device's
agreement with trusted gradients (standing.py) and the latest contributors (guard.py). The
journal has each decision and its reasons. A replay needs no guard; a restart rebuilds it from the journal.
Imports descent; neither asyncio nor aiohttp nor torch.
"""

from edgeflock.server.defence.guard import REFRESH, Decision, DefenceDecision, DefenceGuard, DefenceRecord
from edgeflock.server.defence.norms import MIN_NORMS
from edgeflock.server.defence.rules import DEFENCES, AdmittedUpdate, DefenceKind
from edgeflock.server.defence.standing import Cosines, Trusted
