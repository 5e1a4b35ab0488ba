"""What a screen shows can be known without one."""

from tests.test_imports import modules_after


def test_status_loads_no_textual_and_no_server() -> None:
    loaded = modules_after("import edgeflock.devices.watching.status, edgeflock.devices.watching.text")
    assert "edgeflock.tui.state" in loaded
    assert not loaded & {"textual", "torch", "edgeflock.server", "matplotlib"}
