"""Where the states of a run come from: a live server or a recording.

From outside the monitor: `MonitorState`, and `reduce`, which makes it of the feed's frames and is pure.
`FeedClient` speaks to a server. A `Source` is a run that can be watched: `Live` follows a server and keeps
its recent past, `Replay` plays a `Recording`, which a `Recorder` wrote. None of them knows who watches.
Imports: `edgeflock.shared` and `edgeflock.tui.text`; asyncio and aiohttp are at home here.
"""

from edgeflock.tui.sources.feed_client import FeedClient, body_of
from edgeflock.tui.sources.live import Live
from edgeflock.tui.sources.recording import Recorder, Recording
from edgeflock.tui.sources.replay import Replay
from edgeflock.tui.sources.source import Source
from edgeflock.tui.sources.state import MonitorState, reduce, remembering

__all__ = [
    "FeedClient",
    "Live",
    "Recorder",
    "Recording",
    "Replay",
    "Source",
    "MonitorState",
    "reduce",
    "remembering",
    "body_of",
]
