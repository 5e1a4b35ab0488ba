"""What an admin does to a run: asked for, confirmed, done, and its outcome told."""

from collections.abc import Awaitable
from typing import Any

from textual.app import App

from edgeflock.shared.errors import EdgeflockError
from edgeflock.shared.protocol.frames import DeviceRow
from edgeflock.tui.pages.commands import Command
from edgeflock.tui.screen.dialogs import Ask, Confirm
from edgeflock.tui.sources.source import Actions
from edgeflock.tui.sources.state import State


async def order(
    app: App[Any], actions: Actions, state: State, command: Command, row: DeviceRow | None
) -> None:
    """Do what was asked for by a key or in words, to the device if it is for one."""
    match command.verb:
        case "pause" if row is not None:
            await pause(app, actions, row, command.text)
        case "resume" if row is not None:
            if await _sure(app, f"Resume {row.name}?", "Its updates count again from now on."):
                await _do(app, actions.resume(row.name))
        case "drop" if row is not None:
            await drop(app, actions, row)
        case "rate":
            await learning_rate(app, actions, state, command.text)
        case "checkpoint":
            await checkpoint(app, actions)
        case "rollback":
            await roll_back(app, actions, state, command.text)


async def pause(app: App[Any], actions: Actions, row: DeviceRow, because: str) -> None:
    """For a reason that everybody sees."""
    reason = await app.push_screen_wait(
        Ask(
            f"Pause {row.name}?",
            "It trains no more until somebody resumes it. Why? Everybody who watches sees it.",
            because,
            placeholder="too hot",
        )
    )
    if reason is not None:
        await _do(app, actions.pause(row.name, reason.strip()))


async def drop(app: App[Any], actions: Actions, row: DeviceRow) -> None:
    about = "Its session ends, and the server refuses its name until somebody resumes it."
    if await _sure(app, f"Drop {row.name}?", about):
        await _do(app, actions.drop(row.name))


async def learning_rate(app: App[Any], actions: Actions, state: State, text: str) -> None:
    """Asks for it if `text` is empty."""
    present = state.run.config.get("coordination", {}).get("learning_rate", "")
    about = "It holds from the next update on, and is journaled."
    answer: str | None = text or await app.push_screen_wait(Ask("Learning rate", about, f"{present}"))
    if answer is None:
        return
    try:
        value = float(answer)
    except ValueError:
        app.notify(f"{answer!r} is not a number", severity="error", markup=False)
        return
    about = f"All devices' updates count with {value:g} instead of {present}."
    if await _sure(app, f"Learning rate {value:g}?", about):
        await _do(app, actions.learning_rate(value))


async def checkpoint(app: App[Any], actions: Actions) -> None:
    about = "The server writes a snapshot of the model to its journal."
    if await _sure(app, "Checkpoint now?", about):
        await _do(app, actions.checkpoint())


async def roll_back(app: App[Any], actions: Actions, state: State, text: str) -> None:
    """Asks for the version if `text` is empty, and proposes that of the best evaluation."""
    answer: str | None = text or await app.push_screen_wait(
        Ask(
            "Roll back to which version?",
            "The run goes on from the model of that version; nothing made since counts.",
            f"{_good_version(state)}",
        )
    )
    if answer is None:
        return
    if not answer.strip().isdecimal():
        app.notify(f"{answer!r} is no version", severity="error", markup=False)
        return
    version = int(answer)
    about = (
        f"The model of version {version:,} counts again, and what came after it no longer. It is journaled."
    )
    if await _sure(app, f"Roll back to version {version:,}?", about):
        await _do(app, actions.roll_back(version))


def _good_version(state: State) -> int:
    """The version of the best evaluation."""
    known = [one for one in state.evaluations if one.loss is not None]
    best = max(known, key=lambda one: (one.accuracy or 0.0, -(one.loss or 0.0)), default=None)
    return 0 if best is None else best.version


async def _sure(app: App[Any], title: str, consequence: str) -> bool:
    return await app.push_screen_wait(Confirm(title, consequence))


async def _do(app: App[Any], action: Awaitable[str]) -> None:
    try:
        app.notify(await action, markup=False)
    except EdgeflockError as error:
        app.notify(str(error), title="It was not done", severity="error", markup=False)
