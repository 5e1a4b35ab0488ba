"""What part of an admitted update counts, where some devices may be broken or hostile.

    admit -> weigh by samples -> defend -> staleness and learning rate -> optimizer

A defence is a pure function from what is `Seen` of an update to the part of it that counts (rules.py, by name
in `DEFENCES`). `Guard` remembers what they go by: how large accepted updates are (norms.py), and how far each
device has agreed with a gradient that the server trusts (trusted.py). What was decided is in the journal, so
that a replay needs none of this. Imports descent; neither asyncio nor aiohttp nor torch.
"""

from edgeflock.server.defence.guard import Decision, Guard, Record
from edgeflock.server.defence.norms import HELD, LATEST
from edgeflock.server.defence.rules import DEFENCES, LEAST, Kind, Seen
from edgeflock.server.defence.trusted import Trusted

__all__ = ["DEFENCES", "HELD", "LATEST", "LEAST", "Decision", "Guard", "Kind", "Record", "Seen", "Trusted"]
