"""What part of an admitted update counts, where some devices may be broken or hostile.

    admit -> weigh by samples -> defend -> staleness and learning rate -> optimizer

A defence is a pure function from an `AdmittedUpdate` to the part of it that counts (rules.py, by name in
`DEFENCES`). `DefenceGuard` remembers what defences need: how large accepted updates are (norms.py), how far
each device has agreed with what the server trusts (trusted.py, standing.py), and who moved the model lately
(recent.py). What was decided, and why, is in the journal: a replay needs none of this, and a restart all of
it. Imports descent; neither asyncio nor aiohttp nor torch.
"""

from edgeflock.server.defence.guard import Decision, DefenceDecision, DefenceGuard, DefenceRecord
from edgeflock.server.defence.norms import HELD
from edgeflock.server.defence.rules import DEFENCES, AdmittedUpdate, DefenceKind
from edgeflock.server.defence.trusted import Cosines, Trusted

__all__ = [
    "DEFENCES",
    "HELD",
    "Cosines",
    "DefenceDecision",
    "Decision",
    "DefenceGuard",
    "DefenceKind",
    "DefenceRecord",
    "AdmittedUpdate",
    "Trusted",
]
