"""Questions that change the screen only: a place in a recording, a label."""

from typing import Any

from textual.app import App

from edgeflock.shared.errors import ConfigError
from edgeflock.tui.screen.dialogs import TextPrompt
from edgeflock.tui.screen.preferences import LabelBook
from edgeflock.tui.sources import Source


async def ask_position(app: App[Any], source: Source) -> None:
    """Ask for a place of a replay, and go to it."""
    position = await app.push_screen_wait(
        TextPrompt("Go to", "A time since the recording began, such as 12:30, or a part of it, such as 40%.")
    )
    if position:
        try:
            source.seek(position)
        except ConfigError as error:
            app.notify(str(error), severity="error", markup=False)


async def ask_label(app: App[Any], book: LabelBook, device: str) -> None:
    """Ask for a device's label, and save it."""
    message = f"A label for {device}, stored on this machine. Leave it empty to remove the label."
    name = await app.push_screen_wait(TextPrompt("Label", message, book.labels.get(device, "")))
    if name is None:
        return
    try:
        book.set_label(device, name.strip())
    except OSError as error:
        app.notify(f"labels cannot be saved: {error}", severity="warning", markup=False)
