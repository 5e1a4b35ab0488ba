"""A live server as a source: follows the feed, and keeps recent states for stepping back."""

import asyncio
import time
from collections.abc import Callable, Iterator
from random import Random

from edgeflock.shared.errors import ConfigError, EdgeflockError, Unauthorized
from edgeflock.shared.protocol import feed
from edgeflock.shared.protocol.backoff import back_off
from edgeflock.shared.protocol.frames import DeviceRow, Point, Snapshot
from edgeflock.tui.sources.feed_client import FeedClient
from edgeflock.tui.sources.replay import Recorder
from edgeflock.tui.sources.state import Freshness, LinkState, MonitorState, Notify, reduce, with_history
from edgeflock.tui.sources.state_history import StateHistory, collect_points


class Live:
    """Follows the feed of one server."""

    def __init__(
        self,
        client: FeedClient,
        recorder: Recorder | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        delays: Callable[[], Iterator[float]] = lambda: back_off(Random(), first=1.0),
    ) -> None:
        """`delays()` yields the seconds before each next attempt. A successful attempt starts it again."""
        self.name = client.name
        self.link = LinkState("connecting")
        self.actions = client
        """The actions of an admin. A recording has none."""
        self.states = StateHistory()
        self._client, self._recorder, self._clock = client, recorder, clock
        self._delays = delays
        self._arrived: float | None = None

    @property
    def state(self) -> MonitorState | None:
        return self.states.displayed

    def freshness(self) -> Freshness:
        now = self._clock()
        retry = None if self.link.retry_time is None else max(0.0, self.link.retry_time - now)
        age = float("inf") if self._arrived is None else now - self._arrived
        return Freshness(age, self._client.interval, self.states.frozen, self.states.lag, retry)

    async def run(self, changed: Notify) -> None:
        """Connect, follow, and connect again with growing pauses.

        Ends if the server refuses the token, and before the first frame also at a ConfigError.
        """
        delays = self._delays()
        while True:
            state = self.states.newest  # earlier data of the same run are kept
            greeted = False
            try:
                async for octets in self._client.frames():
                    frame = feed.decode(octets)
                    state = reduce(state if greeted or isinstance(frame, Snapshot) else None, frame)
                    if not greeted:
                        state = with_history(state, await self._client.history())
                        greeted, delays = True, self._delays()
                        self.link = LinkState("live")
                    self._arrived = self._clock()
                    self.states.add(state)
                    if self._recorder is not None:
                        self._recorder.add(frame, octets, state)
                    changed()
            except EdgeflockError as error:
                # Try again where a run was before: a proxy often answers there meanwhile.
                if isinstance(error, Unauthorized) or (isinstance(error, ConfigError) and state is None):
                    self.link = LinkState("refused", str(error))
                    changed()
                    return
                pause = next(delays)
                self.link = LinkState("waiting", str(error), self._clock() + pause)
                changed()
                await asyncio.sleep(pause)
                self.link = LinkState("connecting", str(error))
                changed()

    def toggle(self) -> None:
        """Freeze the display, or continue."""
        self.states.toggle()

    def step(self, frames: int) -> None:
        """Freeze the display, and move by `frames`, back if negative."""
        self.states.step(frames)

    def leap(self, direction: int) -> None:
        """Move by a tenth of all frames."""
        self.states.step(direction * max(1, len(self.states) // 10))

    def scale_speed(self, factor: float) -> None:
        """Do nothing: a live run has one speed."""

    def seek(self, position: str) -> None:
        raise ConfigError("only a replay has times to go to; [ and ] step through recent frames")

    async def history(self, row: DeviceRow) -> tuple[Point, ...]:
        """Return the server's history of a device. If frozen or not connected, use the states seen here."""
        if self.states.frozen or self.link.phase != "live":
            return collect_points(self.states.rows(row.id))
        _, points = await self._client.device(row.name)
        return points
