"""An admin's actions on a run: ask, confirm, do, and show the outcome."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from textual.app import App

from edgeflock.shared.errors import EdgeflockError
from edgeflock.shared.protocol.frames import DeviceRow
from edgeflock.tui.pages.commands import Command
from edgeflock.tui.screen.dialogs import Confirm, TextPrompt
from edgeflock.tui.sources.source import Actions
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.text.numbers import plain

_NAMED = 8
"""The most devices that a question names. It gives the number of the others."""


async def order(
    app: App[Any], actions: Actions, state: MonitorState, command: Command, rows: Sequence[DeviceRow]
) -> None:
    """Carry out a command, for `rows` if it is for devices."""
    match command.verb:
        case "pause":
            await pause(app, actions, rows, command.text)
        case "resume":
            about = "Their updates count again from now on."
            if await _sure_of(app, "Resume", rows, about, "Its updates count again from now on."):
                await _do_each(app, actions.resume, rows)
        case "drop":
            about = "Their sessions end, and the server refuses their names until somebody resumes them."
            one = "Its session ends, and the server refuses its name until somebody resumes it."
            if await _sure_of(app, "Drop", rows, about, one):
                await _do_each(app, actions.drop, rows)
        case "pardon":
            about = "The defence forgets how they stand; they begin at 0, as new ones."
            one = "The defence forgets how it stands; it begins at 0, as a new one."
            if await _sure_of(app, "Pardon", rows, about, one):
                await _do_each(app, actions.pardon, rows)
        case "rate":
            await learning_rate(app, actions, state, command.text)
        case "checkpoint":
            await checkpoint(app, actions)
        case "rollback":
            await roll_back(app, actions, state, command.text)


async def pause(app: App[Any], actions: Actions, rows: Sequence[DeviceRow], because: str) -> None:
    """Ask for a reason, which all watchers see, and pause the devices."""
    about = (
        "It trains no more until somebody resumes it."
        if len(rows) == 1
        else f"{_names(rows)} train no more until somebody resumes them."
    )
    reason = await app.push_screen_wait(
        TextPrompt(
            f"Pause {_called(rows)}?",
            f"{about} Why? Everybody who watches sees it.",
            because,
            placeholder="too hot",
        )
    )
    if reason is not None:
        await _do_each(app, lambda name: actions.pause(name, reason.strip()), rows)


async def learning_rate(app: App[Any], actions: Actions, state: MonitorState, text: str) -> None:
    """Change the learning rate. Ask for it if `text` is empty."""
    present = state.run.config.get("coordination", {}).get("learning_rate", "")
    about = "It holds from the next update on, and is journaled."
    answer: str | None = text or await app.push_screen_wait(TextPrompt("Learning rate", about, f"{present}"))
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


async def roll_back(app: App[Any], actions: Actions, state: MonitorState, text: str) -> None:
    """Go back to a version. Ask for it if `text` is empty, and propose the best evaluation's."""
    answer: str | None = text or await app.push_screen_wait(
        TextPrompt(
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


def _good_version(state: MonitorState) -> int:
    """Return the version of the best evaluation, 0 if there is none."""
    known = [one for one in state.evaluations if one.loss is not None]
    best = max(known, key=lambda one: (one.accuracy or 0.0, -(one.loss or 0.0)), default=None)
    return 0 if best is None else best.version


def _called(rows: Sequence[DeviceRow]) -> str:
    return plain(rows[0].name) if len(rows) == 1 else f"{len(rows):,} devices"


def _names(rows: Sequence[DeviceRow]) -> str:
    """Return the names that a question has room for."""
    names = [plain(row.name) for row in rows[:_NAMED]]
    more = len(rows) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "")


async def _sure_of(app: App[Any], verb: str, rows: Sequence[DeviceRow], about: str, of_one: str) -> bool:
    """Ask one question for all devices."""
    return await _sure(
        app, f"{verb} {_called(rows)}?", of_one if len(rows) == 1 else f"{_names(rows)}. {about}"
    )


async def _sure(app: App[Any], title: str, consequence: str) -> bool:
    return await app.push_screen_wait(Confirm(title, consequence))


async def _do_each(app: App[Any], action: Callable[[str], Awaitable[str]], rows: Sequence[DeviceRow]) -> None:
    """Do the action for one device after another. A refusal for one device does not stop the others."""
    if len(rows) == 1:
        await _do(app, action(rows[0].name))
        return
    refused: list[str] = []
    for row in rows:
        try:
            await action(row.name)
        except EdgeflockError as error:
            refused.append(f"{plain(row.name)}: {error}")
    if done := len(rows) - len(refused):
        app.notify(f"done for {done:,} of {len(rows):,} devices", markup=False)
    if refused:
        app.notify("\n".join(refused[:_NAMED]), title="It was not done", severity="error", markup=False)


async def _do(app: App[Any], action: Awaitable[str]) -> None:
    try:
        app.notify(await action, markup=False)
    except EdgeflockError as error:
        app.notify(str(error), title="It was not done", severity="error", markup=False)
