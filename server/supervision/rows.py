"""The list of runs: a JSON object for each, with as much as the caller may know."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from edgeflock.server.connections.forwarding import ForwardedOrigin
from edgeflock.server.supervision.processes import ANSWER_SECONDS, RunProcess
from edgeflock.server.supervision.requests import ask_for_object

_STATES = {"training": "running", "finished": "ended", "diverged": "failed"}
"""The state of a run, by what its server says."""


async def rows_for_operator(runs: Iterable[RunProcess]) -> list[dict[str, Any]]:
    """Return the rows of all runs, for a viewer or an admin of the server."""
    runs = list(runs)
    await asyncio.gather(*(run.refresh() for run in runs if not run.unavailable_reason))
    return [row(run, run.status) for run in runs]


async def rows_for_stranger(
    runs: Iterable[RunProcess], origin: ForwardedOrigin, headers: dict[str, str], *, shows_open: bool
) -> list[dict[str, Any]]:
    """Return the rows of the runs that know the caller, as far as the role there allows.

    The runs' servers decide by `headers`: the caller's Authorization and Host. With `shows_open`, open runs
    are listed also while their servers do not run, so that a device whose labels lead there waits for it.
    """

    async def ask(run: RunProcess) -> dict[str, Any] | None:
        if run.unavailable_reason:
            settings = None if run.config is None or not shows_open else run.config.server
            is_shown = settings and settings.open and settings.client_certificates != "everybody"
            return row(run, {}) | {"reason": ""} if is_shown else None
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                code, status = await ask_for_object(run.proxy.socket_path, "/v1/status", origin, headers)
            if code == 200:
                return row(run, status)
            if code == 403 and "Authorization" in headers:  # a token that lets a device join, and no more
                return row(run, {})
        return None

    found = await asyncio.gather(*map(ask, runs))
    return [one for one in found if one is not None]


def row(run: RunProcess, status: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a run, whose server answers with `status`."""
    evaluation = status.get("evaluation") or {}
    state, reason = str(run.state), run.reason or run.file_error
    if run.state == "running" and "state" in status:
        state = _STATES.get(status["state"], status["state"])
        reason = status.get("diverged") or run.file_error
    devices = status.get("devices")
    return {
        "name": run.file.name,
        "state": state,
        "reason": reason,
        "labels": [] if run.config is None else run.config.server.labels,
        "run": status.get("run"),
        "model": status.get("model"),
        "version": status.get("version"),
        "updates_target": status.get("updates_target"),
        "loss": evaluation.get("loss"),
        "accuracy": evaluation.get("accuracy"),
        "devices": None if devices is None else sum(bool(device["connected"]) for device in devices),
        "ingress": status.get("ingress"),
        "egress": status.get("egress"),
    }
