"""A run's state, for people and as JSON."""

import asyncio
import json
from typing import Any

import aiohttp
from rich.console import Console
from rich.table import Table
from rich.text import Text

from edgeflock.shared.errors import ConfigError, EdgeflockError, Unauthorized


async def fetch(http: aiohttp.ClientSession, server: str, path: str, token: str) -> bytes:
    """The body of GET server/path. Raises EdgeflockError if there is none."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        async with http.get(f"{server.rstrip('/')}{path}", headers=headers) as response:
            if response.status == Unauthorized.status:
                raise Unauthorized("the server does not know this token (client.token)")
            if response.status != 200:
                raise EdgeflockError(f"{server}{path} answered {response.status} {response.reason}")
            return await response.read()
    except aiohttp.InvalidURL as error:
        raise ConfigError(f"client.server {server!r} must be a URL such as http://192.0.2.1:8470") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise EdgeflockError(f"no answer from {server}: {error or type(error).__name__}") from error


def show_status(server: str, token: str, *, as_json: bool) -> None:
    """Print the state of the run at `server`."""

    async def get() -> Any:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http:
            return json.loads(await fetch(http, server, "/v1/status", token))

    status = asyncio.run(get())
    if as_json:
        print(json.dumps(status))
    else:
        _print(Console(), status)


def _print(console: Console, status: dict[str, Any]) -> None:
    evaluation = status["evaluation"] or {}
    target = f" of {status['updates_target']:,}" if status["updates_target"] else ""
    coordination, compression = status["coordination"], status["compression"]
    console.print(
        f"Run {status['run']}, {status['state']}: {status['model']}, {status['parameters']:,} parameters"
    )
    console.print(
        f"{coordination['rule']}, learning rate {coordination['learning_rate']}, "
        f"select {compression['select']}, values {compression['values']}"
    )
    console.print(f"Version {status['version']:,}{target}")
    if evaluation:
        accuracy = evaluation["accuracy"]
        shown = "" if accuracy is None else f", accuracy {accuracy:.2%}"
        console.print(f"Loss {_number(evaluation['loss'], 4)}{shown} at version {evaluation['version']:,}")
    console.print(
        f"Ingress {size(status['ingress'])}, egress {size(status['egress'])}"
        + (f", {status['reduction']}x less than dense float32" if status["reduction"] else "")
    )
    table = Table(box=None, header_style="bold")
    for name in ("device", "state", "updates", "refused", "staleness", "loss", "ingress", "egress", "idle"):
        table.add_column(name, justify="left" if name in ("device", "state") else "right")
    for device in sorted(status["devices"], key=lambda device: device["name"]):
        table.add_row(
            Text("".join(c if c.isprintable() else "?" for c in device["name"])),
            "connected" if device["connected"] else "away",
            f"{device['updates']:,}",
            f"{device['refused']:,}",
            str(device["staleness"]),
            _number(device["loss"], 3),
            size(device["ingress"]),
            size(device["egress"]),
            f"{device['idle_seconds']:.0f} s" if device["last_seen"] else "-",
        )
    console.print(table)


def _number(value: float | None, digits: int) -> str:
    return "not finite" if value is None else f"{value:.{digits}f}"


def size(octets: float) -> str:
    """Bytes in decimal units, e.g. 12.3 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if octets < 1000 or unit == "GB":
            break
        octets /= 1000
    return f"{octets:.0f} B" if unit == "B" else f"{octets:.1f} {unit}"
