"""The runs of a server that hosts several: their list as text, and the actions of its admin."""

import asyncio
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from edgeflock.shared.errors import EdgeflockError
from edgeflock.shared.numbers import integer, loss, size
from edgeflock.tui.sources import FeedClient
from edgeflock.tui.text.numbers import plain

ACTION_SECONDS = 180.0
"""The most seconds of an action. A process takes a while to end, and a model to be saved."""

_LIST_SECONDS = 5.0
"""The most seconds to find out whether a server hosts several runs."""

_COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "run": lambda row: str(row["name"]),
    "state": lambda row: str(row["state"]),
    "model": lambda row: str(row["model"] or "-").rpartition(":")[2],
    "version": lambda row: integer(row["version"]),
    "accuracy": lambda row: "-" if row["accuracy"] is None else f"{row['accuracy']:.2%}",
    "loss": lambda row: "-" if row["loss"] is None else loss(row["loss"], 4),
    "devices": lambda row: integer(row["devices"]),
    "ingress": lambda row: "-" if row["ingress"] is None else size(row["ingress"]),
    "egress": lambda row: "-" if row["egress"] is None else size(row["egress"]),
    "labels": lambda row: " ".join(row["labels"]) or "-",
}
"""The title of a column -> the text of a run's cell."""


def print_runs(console: Console, rows: list[dict[str, Any]]) -> None:
    """Print a line for each run, then why those that do not run do not."""
    if not rows:
        console.print("This server shows no run: its runs are not open, and there is no token (--token-file)")
        return
    try:
        lines = [[Text(plain(cell(row))) for cell in _COLUMNS.values()] for row in rows]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise EdgeflockError(
            "the server lists its runs in a form that this Edgeflock does not know; update the older of both"
        ) from error
    table = Table(box=None, header_style="bold")
    for number, title in enumerate(_COLUMNS):
        table.add_column(title, justify="left" if number < 3 or title == "labels" else "right", no_wrap=True)
    for line in lines:
        table.add_row(*line)
    console.print(table)
    for row in rows:
        if row.get("reason"):
            console.print(Text(plain(f"{row['name']}: {row['reason']}")), soft_wrap=True)


def list_runs(server: str, token: str, seconds: float | None = None) -> list[dict[str, Any]]:
    """Return the runs at the URL `server` that the token shows. Raises EdgeflockError."""
    answer = asyncio.run(FeedClient(server, token).request("GET", "/v1/runs", seconds=seconds))
    if not isinstance(answer, dict) or not isinstance(answer.get("runs"), list):
        raise EdgeflockError(f"{server} hosts no folder of runs; edgeflock status shows its one run")
    rows: list[dict[str, Any]] = answer["runs"]
    if not all(isinstance(row, dict) and isinstance(row.get("name"), str) for row in rows):
        raise EdgeflockError(f"{server} lists runs without names")
    return rows


def run_addresses(server: str, token: str) -> list[str]:
    """Return the URLs of the runs at `server`, or its own URL if it hosts one.

    A server that does not answer, or does not know the token, is taken for one of one run.
    """
    try:
        rows = list_runs(server, token, _LIST_SECONDS)
    except EdgeflockError:
        return [server]
    return [f"{server.rstrip('/')}/v1/runs/{row['name']}" for row in rows] or [server]


def act_on_run(server: str, token: str, action: str, name: str) -> str:
    """Pause, resume or archive a run, and return what was done. Raises EdgeflockError."""
    client = FeedClient(server, token)
    path = f"/v1/runs/{name}/{action}"
    return str(asyncio.run(client.request("POST", path, {}, seconds=ACTION_SECONDS))["detail"])
