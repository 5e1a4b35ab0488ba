"""What a screen shows can be known without one."""

import pytest

from tests.test_imports import modules_after


def test_status_loads_no_textual_and_no_server() -> None:
    loaded = modules_after("import edgeflock.operations.status, edgeflock.operations.text")
    assert "edgeflock.tui.sources.state" in loaded
    assert not loaded & {"textual", "torch", "edgeflock.server", "matplotlib"}


@pytest.mark.parametrize("door", ["tui", "tui.text", "tui.sources", "tui.pages"])
def test_no_door_but_the_screen_s_loads_textual(door: str) -> None:
    assert "textual" not in modules_after(f"import edgeflock.{door}")


def test_which_runs_to_show_is_known_without_a_screen() -> None:
    """textual need not be installed for `edgeflock plot`, which opens recordings as `top` does."""
    assert "textual" not in modules_after("import edgeflock.operations.top")
