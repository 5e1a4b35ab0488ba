"""What part of an admitted update counts, where some devices may be broken or hostile.

    admit -> weigh by samples -> defend -> staleness and learning rate -> optimizer

A defence is a pure function from what is `Seen` of an update to the part of it that counts (rules.py, by name
in `DEFENCES`). `Guard` remembers what they go by: how large accepted updates are (norms.py), how far each
device has agreed with what the server trusts (trusted.py, standing.py), and who moved the model lately
(recent.py). What was decided, and why, is in the journal: a replay needs none of this, and a restart all of
it. Imports descent; neither asyncio nor aiohttp nor torch.
"""

from edgeflock.server.defence.guard import Decided, Decision, Guard, Record
from edgeflock.server.defence.norms import HELD
from edgeflock.server.defence.rules import DEFENCES, Kind, Seen
from edgeflock.server.defence.trusted import Agreement, Trusted

__all__ = [
    "DEFENCES",
    "HELD",
    "Agreement",
    "Decided",
    "Decision",
    "Guard",
    "Kind",
    "Record",
    "Seen",
    "Trusted",
]
