"""What is recorded is what is replayed."""

from io import BytesIO
from pathlib import Path

import msgpack
import pytest

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol import feed
from edgeflock.shared.protocol.frames import Frame
from edgeflock.tui.sources.replay import KEY_EVERY, Recorder, Recording
from edgeflock.tui.sources.state import MonitorState, reduce
from tests.tui.runs import BEGAN, frames


def states(number: int = 4, seconds: int = 150) -> list[MonitorState]:
    """The state after each frame."""
    made: list[MonitorState] = []
    for frame in frames(number, seconds):
        made.append(reduce(made[-1] if made else None, frame))
    return made


def recorded(path: Path, number: int = 4, seconds: int = 150) -> list[MonitorState]:
    """Record a run second by second; the states that it went through."""
    made, recorder = states(number, seconds), Recorder.create(path)
    for frame, state in zip(frames(number, seconds), made, strict=True):
        recorder.add(frame, feed.encode(frame), state, received=state.time)
    recorder.close()
    return made


def test_every_state_comes_back_in_any_order(tmp_path: Path) -> None:
    seen = recorded(tmp_path / "run")
    recording = Recording(BytesIO((tmp_path / "run").read_bytes()), "run")
    assert len(recording) == len(seen) == 151
    for number in [*range(0, 151, 7), 150, 3, 61, 60, 59, 120]:
        state = recording.state(number)
        assert (state.time, state.devices, state.overview) == (
            seen[number].time,
            seen[number].devices,
            seen[number].overview,
        )
        assert state.evaluations == seen[number].evaluations
        assert state.events == seen[number].events
        assert state.trend == seen[number].trend


def test_a_seek_reads_from_a_key_frame_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(tmp_path / "run", seconds=300)
    recording = Recording(BytesIO((tmp_path / "run").read_bytes()), "run")
    read: list[int] = []
    whole = Recording.frame

    def counted(self: Recording, number: int) -> Frame:
        read.append(number)
        return whole(self, number)

    monkeypatch.setattr(Recording, "frame", counted)
    recording.state(299)
    assert 1 <= len(read) <= KEY_EVERY
    assert read == sorted(read)


def test_the_curves_of_a_long_recording_are_thinned_and_end_at_the_frame() -> None:
    recording = Recording.from_frames(frames(1, 4500), "long")
    trend = recording.state(4400).trend
    assert len(trend) <= 2001
    assert (trend[0].time, trend[-1].time) == (BEGAN, BEGAN + 4400)


def test_a_recording_that_was_cut_off_ends_before_the_cut(tmp_path: Path) -> None:
    recorded(tmp_path / "run", seconds=20)
    octets = (tmp_path / "run").read_bytes()
    cut = Recording(BytesIO(octets[:-100]), "cut")
    assert len(cut) == 20
    assert cut.state(19).time == BEGAN + 19


@pytest.mark.parametrize(
    ("octets", "complaint"),
    [
        (b"", "no recording"),
        (b"SQLite format 3\0", "no recording"),
        (msgpack.packb({"edgeflock": "recording", "version": 9}), "no recording"),
        (msgpack.packb({"edgeflock": "recording", "version": 1}), "no frames"),
        (msgpack.packb({"edgeflock": "recording", "version": 1}) + b"\x94\xc1", "damaged after frame 0"),
    ],
)
def test_what_is_no_recording_is_refused(octets: bytes, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Recording(BytesIO(octets), "file")


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    recorded(tmp_path / "run", seconds=1)
    with pytest.raises(ConfigError, match="there is such a file already"):
        Recorder.create(tmp_path / "run")
