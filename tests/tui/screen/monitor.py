"""A monitor on a screen of a test, and what one reads there."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot
from textual.widgets import Input

from edgeflock.tui.screen.app import Top
from edgeflock.tui.screen.dialogs import Confirm
from edgeflock.tui.sources import Source
from edgeflock.tui.sources.replay import Recording, Replay
from tests.tui.runs import frames

WIDE, NARROW = (140, 44), (80, 24)


def frozen(number: int = 14, seconds: int = 240, at: str = "100%") -> Replay:
    """A recording that stands still."""
    replay = Replay(Recording.from_frames(frames(number, seconds), "test"), "test", position=at)
    if at != "100%":
        replay.toggle()
    return replay


@asynccontextmanager
async def screen(
    *sources: Source, size: tuple[int, int] = NARROW, folder: Path | None = None
) -> AsyncIterator[Pilot[None]]:
    """A monitor without a terminal."""
    async with Top(sources or [frozen()], folder).run_test(size=size, notifications=True) as pilot:
        await pilot.pause()
        yield pilot


def top(pilot: Pilot[None]) -> Top:
    assert isinstance(pilot.app, Top)
    return pilot.app


def text(pilot: Pilot[None]) -> str:
    """What is on the screen."""
    app = pilot.app
    strips = app.screen._compositor.render_strips(app.size)
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    """Returns once `holds` does."""
    async with asyncio.timeout(300):
        while not holds():
            await pilot.pause(0.02)


async def shows(pilot: Pilot[None], words: str) -> None:
    """Returns once the words are on the screen."""
    try:
        await until(pilot, lambda: words in text(pilot))
    except TimeoutError:
        raise AssertionError(f"{words!r} does not come up on\n{text(pilot)}") from None


async def lacks(pilot: Pilot[None], words: str) -> None:
    """Returns once the words are gone from the screen."""
    try:
        await until(pilot, lambda: words not in text(pilot))
    except TimeoutError:
        raise AssertionError(f"{words!r} stays on\n{text(pilot)}") from None


async def asked(pilot: Pilot[None], words: str) -> None:
    """Returns once a dialog with these words is there and listens."""
    await shows(pilot, words)
    await until(pilot, lambda: isinstance(pilot.app.screen, Confirm) or isinstance(pilot.app.focused, Input))
    await pilot.pause()
