"""A recording as a source: it plays, stands still, and goes anywhere."""

import pytest

from edgeflock.shared.errors import ConfigError
from edgeflock.tui.sources.replay import Recording, Replay
from tests.tui.runs import BEGAN, frames


def replay(speed: float = 1.0, at: str = "") -> Replay:
    return Replay(Recording.from_frames(frames(4, 100), "run"), "run", speed=speed, position=at)


def test_it_plays_at_its_speed_and_stops_at_the_end() -> None:
    playing = replay(speed=4)
    assert playing.advance(2.5)
    assert playing.number == 10
    assert playing.state.time == BEGAN + 10
    playing.scale_speed(2)
    assert playing.advance(5)
    assert playing.number == 50
    assert playing.advance(100)
    assert (playing.number, playing.link.phase) == (100, "ended")
    assert not playing.advance(1)
    playing.toggle()
    assert playing.number == 0


def test_it_stands_still_steps_and_leaps() -> None:
    playing = replay(at="40%")
    assert playing.number == 40
    playing.toggle()
    assert not playing.advance(10)
    playing.step(-3)
    assert playing.number == 37
    playing.leap(1)
    assert playing.number == 47
    playing.leap(-1)
    playing.step(-1000)
    assert playing.number == 0
    playing.toggle()
    assert playing.advance(1)
    assert playing.number == 1


@pytest.mark.parametrize(
    ("where", "number"), [("0", 0), ("1:05", 65), ("75 %", 75), ("12", 12), ("9:00:00", 100)]
)
def test_it_goes_where_it_is_told(where: str, number: int) -> None:
    assert replay(at=where).number == number


@pytest.mark.parametrize("where", ["", "there", "-3", "1:2:3:4"])
def test_it_goes_nowhere_else(where: str) -> None:
    with pytest.raises(ConfigError, match="must be a time such as 12:30"):
        replay().seek(where)


async def test_the_history_of_a_device_is_in_the_frames() -> None:
    playing = replay(at="60")
    row = playing.state.devices[1]
    points = await playing.history(row)
    assert points[-1].bytes == row.ingress
    assert points[-1].loss == row.loss
    assert all(a.bytes < b.bytes for a, b in zip(points, points[1:], strict=False))
