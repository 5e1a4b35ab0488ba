"""Sources of a run's states: a live server or a recording.

Other packages use `MonitorState`, and `reduce`, a pure function that makes it from the feed's frames.
`FeedClient` speaks to a server. A `Source` is a run to watch: `Live` follows a server and keeps its recent
past, and `Replay` plays a `Recording` of a `Recorder`. None of them knows its watchers. Imports:
`edgeflock.shared` and `edgeflock.tui.text`. Only this package uses asyncio and aiohttp.
"""

from edgeflock.tui.sources.feed_client import FeedClient
from edgeflock.tui.sources.live import Live
from edgeflock.tui.sources.replay import Recorder, Recording, Replay
from edgeflock.tui.sources.state import MonitorState, reduce, with_history

Source = Live | Replay
"""A run to watch. Screens know nothing else of it."""
