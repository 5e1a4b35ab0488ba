"""The recent past, for stepping back."""

from edgeflock.shared.protocol.frames import Frame
from edgeflock.tui.sources.state import reduce
from edgeflock.tui.sources.state_history import StateHistory
from tests.tui.runs import frames

FRAMES: list[Frame] = list(frames(4, 30))


def test_kept_states_are_bounded_by_number_and_by_rows() -> None:
    made = [reduce(None, FRAMES[0])]
    for frame in FRAMES[1:]:
        made.append(reduce(made[-1], frame))
    few = StateHistory(max_states=5)
    for state in made:
        few.add(state)
    assert len(few) == 5
    few.step(-100)
    assert few.displayed == made[-5]
    little = StateHistory(max_rows=12)
    for state in made:
        little.add(state)
    assert len(little) == 3, "of four rows each"


def test_a_frozen_display_stays_while_frames_come() -> None:
    made = [reduce(None, FRAMES[0])]
    for frame in FRAMES[1:]:
        made.append(reduce(made[-1], frame))
    kept = StateHistory(max_states=8)
    for state in made[:10]:
        kept.add(state)
    kept.toggle()
    kept.step(-2)
    for state in made[10:]:
        kept.add(state)
        assert kept.displayed == made[7]
    assert kept.lag == made[-1].time - made[7].time
    kept.step(1)
    assert kept.displayed != made[7]
    kept.toggle()
    assert kept.displayed == made[-1]
