"""A hostile device that has joined: some frames of the fuzzer, and every one that ever broke something."""

from pathlib import Path
from random import Random

import pytest

from benchmarks import fuzz_server as fuzz
from benchmarks.fuzz_frames import Frames

CORPUS = Path(__file__).parents[1] / "data" / "frames"


@pytest.mark.slow
@pytest.mark.parametrize("mode", fuzz.MODES)
async def test_frames_of_a_hostile_device(mode: str) -> None:
    tally = fuzz.Tally()
    await fuzz.attack(mode, Frames(Random(15)), tally, 4000, float("inf"))
    assert tally.broken == []
    assert tally.frames == 4000
    assert 3 * tally.past_sequence > tally.frames, "they are looked into"
    assert tally.honest > 0


@pytest.mark.parametrize("mode", fuzz.MODES)
async def test_frames_that_once_broke_something(mode: str) -> None:
    frames = [path.read_bytes() for path in sorted(CORPUS.glob("*.bin"))]
    assert frames
    tally = fuzz.Tally()
    await fuzz.attack(mode, iter(frames), tally, len(frames), float("inf"))
    assert tally.broken == []
    assert tally.frames == len(frames)
