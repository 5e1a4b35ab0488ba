"""Whole screens against the ones that somebody looked at and found good, at two sizes.

`EDGEFLOCK_REDRAW=1 pytest tests/tui/screen/test_snapshots.py` writes them anew: look at them
before you keep them.
"""

import asyncio
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from textual.pilot import Pilot

from edgeflock.tui.sources.replay import Recording, Replay
from tests.tui.runs import frames, spread, unwell
from tests.tui.screen.monitor import NARROW, WIDE, frozen, screen, shows, text

SCREENS = Path(__file__).parent / "snapshots"

KEYS = {
    "overview": [],
    "overview-bytes": ["x", "x"],
    "fleet": ["2", "down", "down"],
    "fleet-filter": ["slash", *"jetson loss>0.7", "enter"],
    "fleet-marked": ["2", "m", "down", "m", "right"],
    "device": ["2", "down", "enter"],
    "events": ["3"],
    "config": ["4"],
    "findings": ["5", "down"],
    "help": ["2", "question_mark"],
}


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def comes_to(pilot: Pilot[None], shown: Callable[[], str], path: Path) -> None:
    """What is shown is in the file, once the screen has come to rest."""
    expected = path.read_text("utf-8")
    with suppress(TimeoutError):
        async with asyncio.timeout(60):
            while shown() != expected:
                await pilot.pause(0.02)
    assert shown() == expected


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "140x44"])
@pytest.mark.parametrize("name", KEYS)
async def test_the_screen_is_as_it_was(name: str, size: tuple[int, int]) -> None:
    path = SCREENS / f"{name}-{size[0]}x{size[1]}.txt"
    if name in ("findings", "fleet-marked"):
        shown = Replay(Recording.from_frames(map(unwell, frames(14, 240)), "test"), "test", position="100%")
    else:
        shown = frozen(40 if name == "fleet" else 14)
    async with screen(shown, size=size) as pilot:
        await pilot.press(*KEYS[name])
        if name == "device":
            await shows(pilot, "Received ─")
        await pilot.pause()
        if os.environ.get("EDGEFLOCK_REDRAW"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text(pilot) + "\n", "utf-8")
        await comes_to(pilot, lambda: text(pilot) + "\n", path)


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "140x44"])
async def test_gateways_and_shards_are_as_they_were(size: tuple[int, int]) -> None:
    path = SCREENS / f"overview-gateways-{size[0]}x{size[1]}.txt"
    recorded = Recording.from_frames((spread(frame, 3, 4, 1) for frame in frames(14, 240)), "test")
    async with screen(Replay(recorded, "test", position="100%"), size=size) as pilot:
        await pilot.pause()
        shown = text(pilot) + "\n"
    if os.environ.get("EDGEFLOCK_REDRAW"):
        path.write_text(shown, "utf-8")
    assert shown == path.read_text("utf-8")


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "140x44"])
@pytest.mark.parametrize("name", ["overview", "fleet"])
async def test_its_colours_are_as_they_were(name: str, size: tuple[int, int]) -> None:
    path = SCREENS / f"{name}-{size[0]}x{size[1]}.svg"
    async with screen(frozen(14), size=size) as pilot:
        await pilot.press(*KEYS[name])
        await pilot.pause()

        def drawn() -> str:
            # Rich names its classes after a checksum of what the picture holds.
            return re.sub(r"terminal-\d+-", "terminal-", pilot.app.export_screenshot())

        if os.environ.get("EDGEFLOCK_REDRAW"):
            path.write_text(drawn(), "utf-8")
        await comes_to(pilot, drawn, path)


def test_every_screen_fits() -> None:
    for path in SCREENS.glob("*.txt"):
        width, height = (int(part) for part in path.stem.rpartition("-")[2].split("x"))
        lines = path.read_text("utf-8").splitlines()
        assert len(lines) <= height
        assert max(map(len, lines)) <= width
