"""Rollback of a model by an operator."""

import json
from typing import Any

import aiohttp

from edgeflock.operations.requests import send_request
from edgeflock.shared.errors import EdgeflockError
from edgeflock.tui.sources import read_body


async def roll_back(server: str, token: str, version: int) -> dict[str, Any]:
    """Roll back the model with the admin token. Return {"of", "version"}: its source version and its new one.

    Raises EdgeflockError if the server does not do it.
    """
    timeout = aiohttp.ClientTimeout(total=600)  # the server replays updates since a snapshot
    async with (
        aiohttp.ClientSession(timeout=timeout) as http,
        send_request(http, server, token, "POST", "/v1/rollback", json={"version": version}) as response,
    ):
        body = await read_body(response)
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise EdgeflockError(f"{server} answers a rollback with {body!r:.80}; is it an Edgeflock server?")
        return answer
