"""An admin's actions on a run: ask, confirm, do, and show the outcome."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from textual.app import App

from edgeflock.shared.errors import EdgeflockError
from edgeflock.shared.protocol.frames import DeviceRow
from edgeflock.tui.pages.commands import Command
from edgeflock.tui.screen.dialogs import Confirm, TextPrompt
from edgeflock.tui.sources import FeedClient
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.text.numbers import plain

_NAMED = 8
"""The most devices that a question names. It gives the number of the others."""

_CONSEQUENCES = {
    "resume": ("Their updates count again from now on.", "Its updates count again from now on."),
    "drop": (
        "Their sessions end, and the server refuses their names until somebody resumes them.",
        "Its session ends, and the server refuses its name until somebody resumes it.",
    ),
    "pardon": (
        "The defence forgets their standing; they begin at 0, like new devices.",
        "The defence forgets its standing; it begins at 0, like a new device.",
    ),
}
"""Action -> what it does to several devices, and to one."""


async def run_command(
    app: App[Any], actions: FeedClient, state: MonitorState, command: Command, rows: Sequence[DeviceRow]
) -> None:
    """Carry out a command, for `rows` if it is for devices."""
    match command.verb:
        case "pause":
            await pause(app, actions, rows, command.text)
        case "resume" | "drop" | "pardon":
            plural, singular = _CONSEQUENCES[command.verb]
            consequence = singular if len(rows) == 1 else f"{_names(rows)}. {plural}"
            if await _confirm(app, f"{command.verb.capitalize()} {_subject(rows)}?", consequence):
                action = {"resume": actions.resume, "drop": actions.drop, "pardon": actions.pardon}
                await _run_each(app, action[command.verb], rows)
        case "rate":
            await learning_rate(app, actions, state, command.text)
        case "checkpoint":
            await checkpoint(app, actions)
        case "rollback":
            await roll_back(app, actions, state, command.text)


async def pause(app: App[Any], actions: FeedClient, rows: Sequence[DeviceRow], initial: str) -> None:
    """Ask for a reason, which all watchers see, and pause the devices."""
    message = (
        "It trains no more until somebody resumes it."
        if len(rows) == 1
        else f"{_names(rows)} train no more until somebody resumes them."
    )
    reason = await app.push_screen_wait(
        TextPrompt(
            f"Pause {_subject(rows)}?",
            f"{message} Give a reason, which all viewers see.",
            initial,
            placeholder="too hot",
        )
    )
    if reason is not None:
        await _run_each(app, lambda name: actions.pause(name, reason.strip()), rows)


async def learning_rate(app: App[Any], actions: FeedClient, state: MonitorState, text: str) -> None:
    """Change the learning rate. Ask for it if `text` is empty."""
    present = state.run.config.get("coordination", {}).get("learning_rate", "")
    message = "It applies from the next update on, and is journaled."
    answer: str | None = text or await app.push_screen_wait(
        TextPrompt("Learning rate", message, f"{present}")
    )
    if answer is None:
        return
    try:
        value = float(answer)
    except ValueError:
        app.notify(f"{answer!r} is not a number", severity="error", markup=False)
        return
    message = f"All updates are applied with {value:g} instead of {present}."
    if await _confirm(app, f"Learning rate {value:g}?", message):
        await _run(app, actions.set_learning_rate(value))


async def checkpoint(app: App[Any], actions: FeedClient) -> None:
    message = "The server writes a snapshot of the model to its journal."
    if await _confirm(app, "Checkpoint now?", message):
        await _run(app, actions.checkpoint())


async def roll_back(app: App[Any], actions: FeedClient, state: MonitorState, text: str) -> None:
    """Go back to a version. Ask for it if `text` is empty, and propose the best evaluation's."""
    answer: str | None = text or await app.push_screen_wait(
        TextPrompt(
            "Roll back to which version?",
            "The run continues from the model of that version, without later updates.",
            f"{_good_version(state)}",
        )
    )
    if answer is None:
        return
    if not answer.strip().isdecimal():
        app.notify(f"{answer!r} is not a version number", severity="error", markup=False)
        return
    version = int(answer)
    message = (
        f"The run continues from the model of version {version:,}, without later updates. It is journaled."
    )
    if await _confirm(app, f"Roll back to version {version:,}?", message):
        await _run(app, _roll_back(actions, version))


async def _roll_back(actions: FeedClient, version: int) -> str:
    done = await actions.roll_back(version)
    return f"rolled back to the model of version {done['of']:,}, which is now version {done['version']:,}"


def _good_version(state: MonitorState) -> int:
    """Return the version of the best evaluation, 0 if there is none."""
    evaluated = [one for one in state.evaluations if one.loss is not None]
    best = max(evaluated, key=lambda one: (one.accuracy or 0.0, -(one.loss or 0.0)), default=None)
    return 0 if best is None else best.version


def _subject(rows: Sequence[DeviceRow]) -> str:
    return plain(rows[0].name) if len(rows) == 1 else f"{len(rows):,} devices"


def _names(rows: Sequence[DeviceRow]) -> str:
    """Return the names that a question has room for."""
    names = [plain(row.name) for row in rows[:_NAMED]]
    more = len(rows) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "")


async def _confirm(app: App[Any], title: str, consequence: str) -> bool:
    return await app.push_screen_wait(Confirm(title, consequence))


async def _run_each(
    app: App[Any], action: Callable[[str], Awaitable[str]], rows: Sequence[DeviceRow]
) -> None:
    """Do the action for one device after another. A refusal for one device does not stop the others."""
    if len(rows) == 1:
        await _run(app, action(rows[0].name))
        return
    refused: list[str] = []
    for row in rows:
        try:
            await action(row.name)
        except EdgeflockError as error:
            refused.append(f"{plain(row.name)}: {error}")
    if done := len(rows) - len(refused):
        app.notify(f"done for {done:,} of {len(rows):,} device{'s' * (len(rows) != 1)}", markup=False)
    if refused:
        app.notify("\n".join(refused[:_NAMED]), title="It was not done", severity="error", markup=False)


async def _run(app: App[Any], action: Awaitable[str]) -> None:
    try:
        app.notify(await action, markup=False)
    except EdgeflockError as error:
        app.notify(str(error), title="It was not done", severity="error", markup=False)
