"""How far a run is, and when it ends."""

from dataclasses import replace

import pytest

from edgeflock.tui.pages.header import header, progress
from edgeflock.tui.sources.state import Freshness, LinkState, MonitorState
from edgeflock.tui.text.lines import plain_text
from tests.tui.runs import state


def ending(
    updates: int, seconds: float, *, past: float | None, version: int = 300, rate: float = 10
) -> MonitorState:
    """A run that ends after so many updates or seconds (0: not by them), `past` seconds after its first."""
    made = state(14, 60)
    config = {**made.run.config, "end": {**made.run.config["end"], "seconds": seconds}}
    run = replace(made.run, updates_target=updates, config=config)
    began = None if past is None else made.time - past
    overview = replace(made.overview, version=version, updates_per_s=rate, began=began)
    return replace(made, run=run, overview=overview)


@pytest.mark.parametrize(
    ("run", "reported"),
    [
        (ending(0, 0, past=60), (None, None)),
        (ending(1200, 0, past=60), (90.0, 0.25)),
        (ending(1200, 0, past=60, rate=0), (None, 0.25)),
        (ending(0, 600, past=60), (540.0, 0.1)),
        (ending(0, 600, past=None), (None, 0.0)),
        (ending(0, 600, past=700), (0.0, 1.0)),
        (ending(1200, 600, past=60), (90.0, 0.25)),
        (ending(1200, 120, past=60), (60.0, 0.5)),
        (ending(1200, 600, past=60, rate=0), (540.0, 0.1)),
    ],
)
def test_what_ends_the_run_first_says_how_far_it_is(
    run: MonitorState, reported: tuple[float | None, float | None]
) -> None:
    assert progress(run) == pytest.approx(reported) if None not in reported else progress(run) == reported


def test_the_header_says_when_a_run_of_seconds_ends() -> None:
    def line(run: MonitorState) -> str:
        return plain_text([header(run, LinkState("live"), Freshness(0.0), "server", 100)])

    assert "300 updates 9m left ━" in line(ending(0, 600, past=60))
    assert "left" not in line(ending(0, 0, past=60))
    over = ending(0, 600, past=700)
    over = replace(over, overview=replace(over.overview, state="finished"))
    assert "left" not in line(over)


def test_a_recording_without_settings_has_no_end() -> None:
    made = state(14, 60)
    bare = replace(made, run=replace(made.run, updates_target=0, config={}))
    assert progress(bare) == (None, None)
